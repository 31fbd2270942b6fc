//! What a library offers, as it says itself: plain texts, which pass from process to process.

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

/// A step that a library offers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Offered {
    pub name: String,
    /// A line for people; may be empty.
    pub description: String,
    /// Whether attempts can be seen from outside.
    pub has_effects: bool,
    /// The JSON Schema of the step's config, as the plugin says it.
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
    /// The step that `plugin:NAME/STEP` means, or `plugin:NAME` where there is one alone or one with
    /// the plugin's own name.
    ///
    /// # Errors
    /// What is wrong, and what to write instead.
    pub fn step(&self, name: &str, step: Option<&str>) -> Result<&Offered, (String, String)> {
        let names = || self.steps.iter().map(|offered| offered.name.as_str());
        let find = |name: &str| self.steps.iter().find(|offered| offered.name == name);
        match (step, &self.steps[..]) {
            (Some(step), _) => find(step).ok_or_else(|| {
                let help = match nearest(step, names()) {
                    Some(near) => format!("did you mean `plugin:{name}/{near}`?"),
                    None => format!("it offers {}", listed(names(), "and")),
                };
                (format!("the plugin `{name}` offers no step `{step}`"), help)
            }),
            (None, [only]) => Ok(only),
            (None, _) => find(name).ok_or_else(|| {
                let names: Vec<String> = names().map(|step| format!("plugin:{name}/{step}")).collect();
                let help = format!("name one: {}", listed(names.iter().map(String::as_str), "or"));
                (format!("the plugin `{name}` offers several steps"), help)
            }),
        }
    }
}
