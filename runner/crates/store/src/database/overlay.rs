//! `Overlay`: a disk that can be read while it cannot be written; repairs of redb stay in memory.
//!
//! While the disk of the store is full, the store is read through it. It shows the last commit on the disk,
//! and is discarded before the disk itself is reopened.

use std::collections::BTreeMap;
use std::io;

use super::disk::Medium;
use tidegate_model::sync::{Mutex, MutexGuard};

/// Bytes per page of memory.
const PAGE: usize = 4096;

/// A medium under a layer of memory. The medium must not change while the overlay exists.
#[derive(Debug)]
pub(crate) struct Overlay {
    medium: Medium,
    layer: Mutex<Layer>,
}

#[derive(Debug)]
struct Layer {
    len: u64,
    /// Bytes of the medium from here on are hidden, since the overlay was truncated.
    shows: u64,
    /// Complete pages by number.
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(crate) fn over(medium: Medium) -> io::Result<Self> {
        let len = medium.disk().len()?;
        Ok(Self { medium, layer: Mutex::new(Layer { len, shows: len, pages: BTreeMap::new() }) })
    }

    fn layer(&self) -> MutexGuard<'_, Layer> {
        self.layer.lock()
    }

    /// A page of the medium.
    fn below(&self, page: u64, shows: u64) -> io::Result<Vec<u8>> {
        let start = page * PAGE as u64;
        let len = usize::try_from(shows.saturating_sub(start)).unwrap_or(PAGE).min(PAGE);
        let mut bytes = vec![0; PAGE];
        self.read_below(start, &mut bytes[..len])?;
        Ok(bytes)
    }

    fn read_below(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() { Ok(()) } else { self.medium.disk().read(offset, out) }
    }
}

impl redb::StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.layer().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let layer = self.layer();
        if offset + out.len() as u64 > layer.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let shown = usize::try_from(layer.shows.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        let (below, grown) = out.split_at_mut(shown);
        self.read_below(offset, below)?;
        grown.fill(0);
        for (page, at, piece) in pieces(offset, out.len()) {
            if let Some(bytes) = layer.pages.get(&page) {
                out[piece.clone()].copy_from_slice(&bytes[at..at + piece.len()]);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut layer = self.layer();
        layer.len = len;
        layer.shows = layer.shows.min(len);
        let first_gone = len.div_ceil(PAGE as u64);
        layer.pages.retain(|page, _| *page < first_gone);
        let (page, at) = (len / PAGE as u64, usize::try_from(len % PAGE as u64).unwrap_or(0));
        if let Some(bytes) = layer.pages.get_mut(&page) {
            bytes[at..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut layer = self.layer();
        layer.len = layer.len.max(offset + data.len() as u64);
        for (page, at, piece) in pieces(offset, data.len()) {
            if !layer.pages.contains_key(&page) {
                let below = self.below(page, layer.shows)?;
                layer.pages.insert(page, below);
            }
            if let Some(bytes) = layer.pages.get_mut(&page) {
                bytes[at..at + piece.len()].copy_from_slice(&data[piece]);
            }
        }
        Ok(())
    }
}

/// The pages of `len` bytes from `offset` on: for each the offset within it, and the range of these bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = usize::try_from(at % PAGE as u64).unwrap_or(0);
        let start = done;
        done = len.min(start + PAGE - within);
        (start < len).then_some((at / PAGE as u64, within, start..done))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::StorageBackend as _;

    use super::*;
    use crate::faulty_disk::FaultyDisk;

    #[derive(Clone, Debug)]
    enum Change {
        Write(usize, Vec<u8>),
        SetLen(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        let write = (0_usize..20_000, prop::collection::vec(1_u8..=255, 1..9_000));
        prop_oneof![
            write.prop_map(|(offset, data)| Change::Write(offset, data)),
            (0_usize..30_000).prop_map(Change::SetLen),
        ]
    }

    proptest! {
        /// Reads return the changed bytes, and the disk below stays unchanged.
        #[test]
        fn an_overlay_reads_as_what_it_was_made(
            len in 0_usize..20_000,
            changes in prop::collection::vec(change(), 0..8),
        ) {
            let below: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let disk = FaultyDisk::with(below.clone());
            let overlay = Overlay::over(Medium::new(Box::new(disk.clone()))).unwrap();
            let mut model = below.clone();
            for change in changes {
                match change {
                    Change::Write(offset, data) => {
                        let end = offset + data.len();
                        model.resize(model.len().max(end), 0);
                        model[offset..end].copy_from_slice(&data);
                        overlay.write(offset as u64, &data).unwrap();
                    }
                    Change::SetLen(len) => {
                        model.resize(len, 0);
                        overlay.set_len(len as u64).unwrap();
                    }
                }
                prop_assert_eq!(overlay.len().unwrap(), model.len() as u64);
                let mut read = vec![7; model.len()];
                overlay.read(0, &mut read).unwrap();
                prop_assert!(read == model, "they differ");
                let middle = model.len() / 3;
                let mut part = vec![7; model.len() - middle];
                overlay.read(middle as u64, &mut part).unwrap();
                prop_assert!(part == model[middle..], "they differ from {} on", middle);
            }
            prop_assert!(disk.bytes().store == below, "the disk was written");
        }
    }
}
