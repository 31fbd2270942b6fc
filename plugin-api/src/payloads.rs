//! `Payloads`: many payloads in one buffer, without an allocation per job, and cheap to move between threads.

/// The payloads of several jobs, back to back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payloads {
    bytes: Vec<u8>,
    /// The end of each payload in `bytes`; ascending.
    ends: Vec<usize>,
}

impl Payloads {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with_capacity(jobs: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(jobs) }
    }

    /// Number of payloads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The size of all payloads together, in bytes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// All payloads back to back; [`Self::lengths`] has the length of each.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The payload at `position` (from 0), or `None` past the last one.
    #[must_use]
    pub fn get(&self, position: usize) -> Option<&[u8]> {
        let end = *self.ends.get(position)?;
        let start = match position {
            0 => 0,
            _ => self.ends[position - 1],
        };
        Some(&self.bytes[start..end])
    }

    /// The payload at `position`, to be changed in place.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut [u8]> {
        let end = *self.ends.get(position)?;
        let start = match position {
            0 => 0,
            _ => self.ends[position - 1],
        };
        Some(&mut self.bytes[start..end])
    }

    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let payload = &self.bytes[start..end];
            start = end;
            payload
        })
    }

    /// The length of each payload, in bytes.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        let mut start = 0;
        self.ends.iter().map(move |&end| {
            let length = end - start;
            start = end;
            length
        })
    }

    pub fn push(&mut self, payload: &[u8]) {
        self.bytes.extend_from_slice(payload);
        self.ends.push(self.bytes.len());
    }

    /// Appends one payload that `write` appends to the buffer. If it fails, no part of it stays.
    ///
    /// # Errors
    /// The error of `write`.
    pub fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let start = self.bytes.len();
        match write(&mut self.bytes) {
            Ok(()) => {
                // A writer may only append: a payload never ends before it starts.
                debug_assert!(self.bytes.len() >= start);
                self.ends.push(self.bytes.len());
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }

    /// Appends all payloads of `other`.
    pub fn append(&mut self, other: &Payloads) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| base + end));
    }

    /// Keeps the first `len` payloads and drops the others.
    pub fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Drops every payload and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

impl<'a> FromIterator<&'a [u8]> for Payloads {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(payloads: I) -> Self {
        let mut all = Self::new();
        for payload in payloads {
            all.push(payload);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::Payloads;

    #[test]
    fn a_payload_that_fails_to_be_written_leaves_no_trace() {
        let mut payloads: Payloads = [&b"one"[..]].into_iter().collect();
        let failed = payloads.push_with(|buffer| {
            buffer.extend_from_slice(b"tw");
            Err("broken")
        });
        assert_eq!(failed, Err("broken"));
        payloads.push(b"three");
        assert_eq!(payloads.iter().collect::<Vec<_>>(), [&b"one"[..], b"three"]);
    }

    #[test]
    fn truncating_drops_the_last_payloads_and_their_bytes() {
        let mut payloads: Payloads = [&b"one"[..], b"", b"three"].into_iter().collect();
        payloads.truncate(2);
        assert_eq!(payloads.byte_len(), 3);
        assert_eq!(payloads.get(1), Some(&b""[..]));
        assert_eq!(payloads.get(2), None);
        payloads.truncate(0);
        assert!(payloads.is_empty());
    }

    #[test]
    fn appending_keeps_the_borders() {
        let mut all: Payloads = [&b"a"[..], b"bc"].into_iter().collect();
        let more: Payloads = [&b"def"[..]].into_iter().collect();
        all.append(&more);
        assert_eq!(all.lengths().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(all.get(2), Some(&b"def"[..]));
    }
}
