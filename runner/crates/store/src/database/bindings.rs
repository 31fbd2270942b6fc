//! Bindings: the input that each binding of a step named first.
//!
//! A delivery hash has the name of a binding and the index of a job. If a binding named another
//! input later, it would repeat hashes for other jobs. So the engine distinguishes its inputs by these records. They outlive
//! their step: the hashes of a step that returns must not occur twice either.

use std::collections::BTreeMap;

use redb::{ReadTransaction, ReadableTable as _, TableDefinition, TableError, WriteTransaction};

use super::format::{self, Bytes, NAMES, Names, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::Address;

pub(crate) const BINDINGS: TableDefinition<'_, (u32, &str), Bytes> = TableDefinition::new("bindings");

/// The first input of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstInput {
    pub step: Address,
    pub binding: String,
    pub input: Address,
}

impl Store {
    /// The first input of each binding, by step and binding, with the names that all of them have now.
    pub fn first_inputs(&self) -> Result<BTreeMap<(Address, String), Address>, ReadError> {
        let first = self.view(read)?;
        Ok(first.into_iter().map(|FirstInput { step, binding, input }| ((step, binding), input)).collect())
    }
}

pub(crate) fn read(txn: &ReadTransaction) -> Result<Vec<FirstInput>, StoreCause> {
    let table = match txn.open_table(BINDINGS) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let names = Names::read(&txn.open_table(NAMES)?)?;
    let mut first = Vec::new();
    for entry in table.iter()? {
        let (key, stored) = entry?;
        let (step, binding) = key.value();
        let input = unseal((step, binding), stored.value())?;
        let (step, input) = (names.get(step)?.clone(), names.get(input)?.clone());
        first.push(FirstInput { step, binding: binding.to_owned(), input });
    }
    Ok(first)
}

/// Records the inputs of bindings that have none.
pub(crate) fn write(txn: &WriteTransaction, first: &[FirstInput]) -> Result<(), StoreCause> {
    for FirstInput { step, binding, input } in first {
        let (step, input) = (format::intern(txn, step)?, format::intern(txn, input)?);
        let mut table = txn.open_table(BINDINGS)?;
        if table.get((step, binding.as_str()))?.is_none() {
            table.insert((step, binding.as_str()), &*seal((step, binding), input))?;
        }
    }
    Ok(())
}

/// Removes the bindings of a step. Each has the number of its input.
pub(crate) fn take(txn: &WriteTransaction, step: u32) -> Result<Vec<(String, u32)>, StoreCause> {
    let mut table = txn.open_table(BINDINGS)?;
    let mut taken = Vec::new();
    for entry in table.range((step, "")..)? {
        let (key, stored) = entry?;
        let (of, binding) = key.value();
        if of != step {
            break;
        }
        taken.push((binding.to_owned(), unseal((step, binding), stored.value())?));
    }
    for (binding, _) in &taken {
        table.remove((step, binding.as_str()))?;
    }
    Ok(taken)
}

/// Adds bindings to a step.
pub(crate) fn put(txn: &WriteTransaction, step: u32, bindings: &[(String, u32)]) -> Result<(), StoreCause> {
    if bindings.is_empty() {
        return Ok(());
    }
    let mut table = txn.open_table(BINDINGS)?;
    for (binding, input) in bindings {
        table.insert((step, binding.as_str()), &*seal((step, binding), *input))?;
    }
    Ok(())
}

fn seal((step, binding): (u32, &str), input: u32) -> Vec<u8> {
    RecordKey::Binding(step, binding).seal(input.to_le_bytes().to_vec())
}

fn unseal((step, binding): (u32, &str), stored: &[u8]) -> Result<u32, StoreCause> {
    let record = RecordKey::Binding(step, binding).unseal(stored)?;
    let input =
        record.try_into().map_err(|_| StoreCause::Damaged("the record of a binding is too long".into()));
    input.map(u32::from_le_bytes)
}
