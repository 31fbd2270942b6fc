//! `Instance`: one of the pipelines that a file with `[pipeline.each]` declares, with its parameters.

use std::collections::BTreeMap;

use tidegate_model::Name;
use tidegate_model::suggest::{did_you_mean, listed};

/// One instance of a pipeline.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) name: Name,
    values: BTreeMap<String, Parameter>,
}

/// A parameter of an instance, as text.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) value: String,
    /// It contains an inserted value, which must not be shown.
    pub(crate) secret: bool,
}

impl Instance {
    pub(crate) fn new(name: Name, values: BTreeMap<String, Parameter>) -> Self {
        Self { name, values }
    }

    /// The value of `each`, or of `each.NAME`.
    ///
    /// # Errors
    /// Message and help.
    pub(crate) fn get(&self, name: &str) -> Result<Parameter, (String, String)> {
        let Some(key) = name.strip_prefix("each.") else {
            return Ok(Parameter { value: self.name.to_string(), secret: false });
        };
        self.values.get(key).cloned().ok_or_else(|| {
            let keys = || self.values.keys().map(String::as_str);
            let known = || {
                if self.values.is_empty() {
                    return format!("write it into `[pipeline.each]`: `{} = {{ {key} = \"…\" }}`", self.name);
                }
                format!("its parameters are {}", listed(keys(), "and"))
            };
            let help = did_you_mean(key, keys()).unwrap_or_else(known);
            (format!("the instance `{}` has no parameter `{key}`", self.name), help)
        })
    }
}

/// Whether `name` in `${…}` is the instance or one of its parameters.
pub(crate) fn is_of_instance(name: &str) -> bool {
    name == "each" || name.starts_with("each.")
}
