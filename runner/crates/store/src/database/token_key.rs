//! `TokenKey`: the key that signs the tokens of the store. It is created once, and never changes.

use redb::{ReadableTable, WriteTransaction};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{ReadError, StoreCause};
use tidegate_model::TokenKey;

/// Its key in `meta`.
const KEY: &str = "token key";

impl Store {
    /// `None`: it does not exist yet.
    pub fn token_key(&self) -> Result<Option<TokenKey>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Option<TokenKey>, StoreCause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(None) };
    let key = TokenKey::new(RecordKey::Meta(KEY).unseal(stored.value())?);
    let key = key.ok_or_else(|| StoreCause::Damaged("the key of its tokens has the wrong length".into()))?;
    Ok(Some(key))
}

/// Stores the key, unless one exists. Returns whether none existed.
pub(crate) fn write(txn: &WriteTransaction, key: Option<&TokenKey>) -> Result<bool, StoreCause> {
    let Some(key) = key else { return Ok(false) };
    let mut meta = txn.open_table(META)?;
    let is_new = read(&meta)?.is_none();
    if is_new {
        meta.insert(KEY, &*RecordKey::Meta(KEY).seal(key.reveal().to_vec()))?;
    }
    Ok(is_new)
}
