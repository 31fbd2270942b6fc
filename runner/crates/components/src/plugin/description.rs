//! `Description`: the steps of a library, as plain texts that are sent between processes.

use serde::{Deserialize, Serialize};
use tidegate_plugin::host::{Offer, Plugin};

use tidegate_model::suggest::{listed, nearest};

/// A library, with at least one step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Description {
    pub name: String,
    pub version: String,
    /// In the plugin's order.
    pub steps: Vec<Offered>,
}

/// A step of a library.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offered {
    pub name: String,
    /// One line for people; may be empty.
    pub description: String,
    /// Whether attempts have external effects.
    pub has_effects: bool,
    /// The JSON Schema of the step's config, as the plugin returns it.
    pub schema: Option<String>,
}

impl From<&Plugin> for Description {
    fn from(plugin: &Plugin) -> Self {
        let offered = |offer: &Offer| Offered {
            name: offer.name().to_owned(),
            description: offer.description().to_owned(),
            has_effects: offer.has_effects(),
            schema: offer.schema().map(str::to_owned),
        };
        Self {
            name: plugin.name().to_owned(),
            version: plugin.version().to_owned(),
            steps: plugin.offers().iter().map(offered).collect(),
        }
    }
}

impl Description {
    /// The step named by `plugin:NAME/STEP`, or by `plugin:NAME` if the library has only one step or one with
    /// the plugin's own name.
    ///
    /// # Errors
    /// The error, and its fix.
    pub fn step(&self, name: &str, step: Option<&str>) -> Result<&Offered, (String, String)> {
        let names = || self.steps.iter().map(|offered| offered.name.as_str());
        let find = |name: &str| self.steps.iter().find(|offered| offered.name == name);
        match (step, &self.steps[..]) {
            (Some(step), _) => find(step).ok_or_else(|| {
                let help = match nearest(step, names()) {
                    Some(near) => format!("did you mean `plugin:{name}/{near}`?"),
                    None => format!("it offers {}", listed(names(), "and")),
                };
                (format!("the step `{step}` is unknown in the plugin `{name}`"), help)
            }),
            (None, [only]) => Ok(only),
            (None, _) => find(name).ok_or_else(|| {
                let names: Vec<String> = names().map(|step| format!("plugin:{name}/{step}")).collect();
                let help = format!("choose one: {}", listed(names.iter().map(String::as_str), "or"));
                (format!("the plugin `{name}` has several steps"), help)
            }),
        }
    }
}
