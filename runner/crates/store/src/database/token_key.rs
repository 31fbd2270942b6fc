//! The key that the tokens of the store are made with. It is made once, and stays.

use redb::{ReadableTable, WriteTransaction};

use super::format::{Bytes, META, RecordKey};
use super::read::Store;
use crate::error::{Cause, ReadError};
use tidegate_model::TokenKey;

/// Where it stands in `meta`.
const KEY: &str = "token key";

impl Store {
    /// `None`: it was not made yet.
    pub fn token_key(&self) -> Result<Option<TokenKey>, ReadError> {
        self.view(|txn| read(&txn.open_table(META)?))
    }
}

pub(crate) fn read(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<Option<TokenKey>, Cause> {
    let Some(stored) = meta.get(KEY)? else { return Ok(None) };
    let key = TokenKey::new(RecordKey::Meta(KEY).unseal(stored.value())?);
    let key = key.ok_or_else(|| Cause::Damaged("the key of its tokens has the wrong length".into()))?;
    Ok(Some(key))
}

/// Keeps the key, unless there is one; answers whether there was none.
pub(crate) fn write(txn: &WriteTransaction, key: Option<&TokenKey>) -> Result<bool, Cause> {
    let Some(key) = key else { return Ok(false) };
    let mut meta = txn.open_table(META)?;
    let is_new = read(&meta)?.is_none();
    if is_new {
        meta.insert(KEY, &*RecordKey::Meta(KEY).seal(key.reveal().to_vec()))?;
    }
    Ok(is_new)
}
