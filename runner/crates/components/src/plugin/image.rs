//! `Image`: the file of a library, read as a whole and checked before the system's loader maps it.
//!
//! The loader trusts the file that it maps: a truncated file ends the process with a signal at some later
//! access. So the headers are checked against the length here. The behaviour of its code cannot be checked.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use tidegate_config::shown;

/// Maximum length of a plugin in bytes.
const LENGTH_MAX: u64 = 1 << 30;

/// The content of a library, complete and for this machine.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    bytes: Vec<u8>,
    sha256: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("`{}` cannot be read", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not a shared library: {reason}", shown(path))]
    Foreign { path: PathBuf, reason: &'static str },
    #[error("`{}` is for another machine ({found}); this one needs {needed}", shown(path))]
    Machine { path: PathBuf, found: String, needed: &'static str },
    #[error("`{}` is cut short: it has {length} bytes of at least {needed}", shown(path))]
    Short { path: PathBuf, length: u64, needed: u64 },
}

impl Image {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::Read { path: path.to_owned(), source };
        let about = std::fs::metadata(path).map_err(failed)?;
        if !about.is_file() || about.len() > LENGTH_MAX {
            let reason = "it is not a regular file of at most 1 GiB";
            return Err(ImageError::Foreign { path: path.to_owned(), reason });
        }
        Self::of(path, std::fs::read(path).map_err(failed)?)
    }

    /// Uses `bytes`, which the caller has read from `path`.
    pub fn of(path: &Path, bytes: Vec<u8>) -> Result<Self, ImageError> {
        if cfg!(target_os = "linux") {
            Elf { path, bytes: &bytes }.check()?;
        }
        let mut sha256 = String::with_capacity(64);
        for byte in Sha256::digest(&bytes) {
            let _ = write!(sha256, "{byte:02x}"); // writing to a String cannot fail
        }
        Ok(Self { path: path.to_owned(), bytes, sha256 })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// 64 lowercase hex digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

/// The machine of this process, by its ELF number and its name.
const MACHINE: (u16, &str) = if cfg!(target_arch = "x86_64") {
    (62, "x86-64")
} else if cfg!(target_arch = "aarch64") {
    (183, "AArch64")
} else if cfg!(target_arch = "riscv64") {
    (243, "RISC-V")
} else {
    (0, "a machine that this version does not support")
};

const MACHINES: [(u16, &str); 6] =
    [(3, "x86"), (40, "ARM"), (62, "x86-64"), (183, "AArch64"), (243, "RISC-V"), (22, "S/390")];

const HEADER: u64 = 64;
const SHARED: u16 = 3;
const LOADED: u32 = 1;
const DYNAMIC: u32 = 2;

/// An ELF file of 64 bits, little-endian.
struct Elf<'a> {
    path: &'a Path,
    bytes: &'a [u8],
}

impl Elf<'_> {
    fn check(&self) -> Result<(), ImageError> {
        if self.bytes.len() < 4 || &self.bytes[..4] != b"\x7fELF" {
            return Err(self.foreign("it has no ELF header"));
        }
        self.reaches(HEADER)?;
        if self.bytes[4] != 2 || self.bytes[5] != 1 {
            let found = if self.bytes[4] == 2 { "big-endian" } else { "32 bits" };
            return Err(self.machine(found.to_owned()));
        }
        let machine = self.u16(18)?;
        if machine != MACHINE.0 {
            let known = MACHINES.iter().find(|(number, _)| *number == machine);
            return Err(
                self.machine(known.map_or_else(|| format!("ELF {machine}"), |(_, name)| (*name).into()))
            );
        }
        if self.u16(16)? != SHARED {
            return Err(self.foreign("it is a program or an object file"));
        }
        let (programs, size, count) = (self.u64(32)?, u64::from(self.u16(54)?), u64::from(self.u16(56)?));
        if size < 56 || count == 0 {
            return Err(self.foreign("it has nothing to load"));
        }
        let mut dynamic = false;
        for number in 0..count {
            let at = programs.saturating_add(number * size);
            self.reaches(at.saturating_add(size))?;
            let kind = self.u32(at)?;
            if kind == LOADED || kind == DYNAMIC {
                self.reaches(self.u64(at + 8)?.saturating_add(self.u64(at + 32)?))?;
            }
            dynamic |= kind == DYNAMIC;
        }
        if !dynamic {
            return Err(self.foreign("it exports nothing"));
        }
        // The sections are at the end of the file and are not loaded. If they are cut off, the file was
        // probably still being written.
        let (sections, size, count) = (self.u64(40)?, u64::from(self.u16(58)?), u64::from(self.u16(60)?));
        self.reaches(sections.saturating_add(size * count))
    }

    fn reaches(&self, needed: u64) -> Result<(), ImageError> {
        let length = self.bytes.len() as u64;
        if needed <= length {
            return Ok(());
        }
        Err(ImageError::Short { path: self.path.to_owned(), length, needed })
    }

    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], ImageError> {
        let found = usize::try_from(at).ok().and_then(|at| self.bytes.get(at..)?.first_chunk());
        found.copied().ok_or_else(|| ImageError::Short {
            path: self.path.to_owned(),
            length: self.bytes.len() as u64,
            needed: at.saturating_add(N as u64),
        })
    }

    fn u16(&self, at: u64) -> Result<u16, ImageError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(&self, at: u64) -> Result<u32, ImageError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: u64) -> Result<u64, ImageError> {
        self.array(at).map(u64::from_le_bytes)
    }

    fn foreign(&self, reason: &'static str) -> ImageError {
        ImageError::Foreign { path: self.path.to_owned(), reason }
    }

    fn machine(&self, found: String) -> ImageError {
        ImageError::Machine { path: self.path.to_owned(), found, needed: MACHINE.1 }
    }
}
