//! `Schemas`: the compiled schema of each HTTP source, as long as its file does not change.

use std::collections::HashMap;
use std::sync::Arc;

use super::response::HttpRefusal;
use tidegate_config::{HttpSource, RequestSchema, SchemaFile};
use tidegate_model::Address;
use tidegate_model::sync::Mutex;

/// Schemas by source, with the files that they were compiled from.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Mutex<HashMap<Address, (SchemaFile, Arc<RequestSchema>)>>);

impl Schemas {
    /// The schema of the source at `address`, if it has one.
    pub(crate) fn of(
        &self,
        address: &Address,
        source: &HttpSource,
    ) -> Result<Option<Arc<RequestSchema>>, HttpRefusal> {
        let Some(file) = &source.schema else { return Ok(None) };
        let mut schemas = self.0.lock();
        if let Some((_, schema)) = schemas.get(address).filter(|(compiled, _)| compiled == file) {
            return Ok(Some(Arc::clone(schema)));
        }
        // It was checked when the configuration was read.
        let schema =
            RequestSchema::compile(&file.text).map_err(|error| HttpRefusal::broken(&error.message))?;
        let schema = Arc::new(schema);
        schemas.insert(address.clone(), (file.clone(), Arc::clone(&schema)));
        Ok(Some(schema))
    }
}
