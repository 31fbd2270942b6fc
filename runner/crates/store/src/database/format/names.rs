//! `Names`: the numbers that represent names in all other tables.

use std::collections::BTreeMap;

use redb::{ReadableTable, ReadableTableMetadata as _, WriteTransaction};

use super::{Bytes, LATE, NAMES, RecordKey};
use crate::error::StoreCause;
use tidegate_model::Address;

/// The number of `address`, if it was ever written.
pub(crate) fn find_id(
    names: &impl ReadableTable<&'static str, Bytes>,
    address: &Address,
) -> Result<Option<u32>, StoreCause> {
    let name = address.to_string();
    let Some(stored) = names.get(&*name)? else { return Ok(None) };
    unseal_id(&name, stored.value()).map(Some)
}

/// The number of `address`; a new one is assigned if it has none.
pub(crate) fn intern(txn: &WriteTransaction, address: &Address) -> Result<u32, StoreCause> {
    let mut names = txn.open_table(NAMES)?;
    if let Some(id) = find_id(&names, address)? {
        return Ok(id);
    }
    // Names are never removed, so the count is the last number.
    let id = u32::try_from(names.len()? + 1)
        .ok()
        .filter(|id| id & LATE == 0)
        .ok_or_else(|| StoreCause::Damaged("the store has too many names".into()))?;
    let name = address.to_string();
    names.insert(&*name, &*RecordKey::Name(&name).seal(id.to_le_bytes().to_vec()))?;
    Ok(id)
}

/// Gives each of two names the number of the other.
pub(crate) fn exchange_ids(
    txn: &WriteTransaction,
    (one, its_id): (&Address, u32),
    (other, other_id): (&Address, u32),
) -> Result<(), StoreCause> {
    let mut names = txn.open_table(NAMES)?;
    for (address, id) in [(one, other_id), (other, its_id)] {
        let name = address.to_string();
        names.insert(&*name, &*RecordKey::Name(&name).seal(id.to_le_bytes().to_vec()))?;
    }
    Ok(())
}

/// Names by their numbers.
#[derive(Debug)]
pub(crate) struct Names(BTreeMap<u32, Address>);

impl Names {
    pub(crate) fn read(table: &impl ReadableTable<&'static str, Bytes>) -> Result<Self, StoreCause> {
        Ok(Self(names(table)?.into_iter().collect()))
    }

    pub(crate) fn get(&self, id: u32) -> Result<&Address, StoreCause> {
        self.0.get(&id).ok_or_else(|| StoreCause::Damaged(format!("the name number {id} is missing")))
    }
}

/// All names with their numbers.
pub(crate) fn names(
    names: &impl ReadableTable<&'static str, Bytes>,
) -> Result<Vec<(u32, Address)>, StoreCause> {
    let mut all = Vec::new();
    for entry in names.iter()? {
        let (name, stored) = entry?;
        let address = Address::parse(name.value())
            .ok_or_else(|| StoreCause::Damaged(format!("`{}` is not a name", name.value().escape_debug())))?;
        all.push((unseal_id(name.value(), stored.value())?, address));
    }
    Ok(all)
}

fn unseal_id(name: &str, stored: &[u8]) -> Result<u32, StoreCause> {
    RecordKey::Name(name).unseal_exact(stored).map(u32::from_le_bytes)
}
