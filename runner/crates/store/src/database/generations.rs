//! `GenerationRecord`: a configuration that the store was run with.

use redb::{ReadableTable as _, WriteTransaction};

use super::format::{GENERATIONS, RecordKey, u64_at};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::Timestamp;

/// A configuration that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerationRecord {
    pub number: u64,
    /// Identifies the configuration, with its scripts and plugins.
    pub fingerprint: u64,
    /// Time of its first start.
    pub time: Timestamp,
}

impl Store {
    /// The last generation; `None` if the store was never run.
    pub fn generation(&self) -> Result<Option<GenerationRecord>, ReadError> {
        self.view(|txn| {
            let table = txn.open_table(GENERATIONS)?;
            let last = table.last()?;
            last.map(|(number, stored)| GenerationRecord::unseal(number.value(), stored.value())).transpose()
        })
    }

    /// All generations, in order of number.
    pub fn generations(&self) -> Result<Vec<GenerationRecord>, ReadError> {
        self.view(|txn| {
            let mut generations = Vec::new();
            for entry in txn.open_table(GENERATIONS)?.iter()? {
                let (number, stored) = entry?;
                generations.push(GenerationRecord::unseal(number.value(), stored.value())?);
            }
            Ok(generations)
        })
    }
}

pub(crate) fn write(txn: &WriteTransaction, generation: Option<GenerationRecord>) -> Result<(), StoreCause> {
    if let Some(generation) = generation {
        txn.open_table(GENERATIONS)?.insert(generation.number, &*generation.seal())?;
    }
    Ok(())
}

impl GenerationRecord {
    pub(crate) fn seal(self) -> Vec<u8> {
        let record = [self.fingerprint.to_le_bytes(), self.time.0.to_le_bytes()].concat();
        RecordKey::Generation(self.number).seal(record)
    }

    pub(crate) fn unseal(number: u64, stored: &[u8]) -> Result<Self, StoreCause> {
        let bytes: [u8; 16] = RecordKey::Generation(number).unseal_exact(stored)?;
        let time = Timestamp(u64_at(&bytes, 8).cast_signed());
        Ok(Self { number, fingerprint: u64_at(&bytes, 0), time })
    }
}
