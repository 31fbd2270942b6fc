//! `Uppercase`: writes a text of each job in capitals, as the smallest useful plugin.
//!
//! `run = "plugin:uppercase"`, with `config = { field = "name" }` for another field than `text`.

use schemars::JsonSchema;
use serde::Deserialize;
use tidegate_plugin::{Context, Failure, Job, Outlet, PluginStep, Value};

/// `config` of the step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The field that is written in capitals.
    pub field: String,
}

impl Default for Config {
    fn default() -> Self {
        Self { field: "text".to_owned() }
    }
}

/// The step.
#[derive(Debug)]
pub struct Uppercase {
    field: String,
}

impl PluginStep for Uppercase {
    const NAME: &'static str = "uppercase";
    const DESCRIPTION: &'static str = "writes a text of the job in capitals";
    type Config = Config;

    fn schema() -> Option<String> {
        tidegate_plugin::schema_of::<Config>()
    }

    fn create(config: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self { field: config.field })
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let mut value: Value = job.parse()?;
        match value.get_mut(&self.field) {
            Some(Value::String(text)) => *text = text.to_uppercase(),
            _ => return Err(Failure::reject(format_args!("the job has no text `{}`", self.field))),
        }
        outlet.give(&value)
    }
}

tidegate_plugin::export_plugin!(Uppercase);

#[cfg(test)]
mod tests {
    use tidegate_plugin::FailureKind;
    use tidegate_plugin::testing::Harness;

    use super::Uppercase;

    #[test]
    fn the_text_is_in_capitals_and_the_rest_as_it_was() {
        let mut step = Harness::<Uppercase>::new("{}").unwrap();
        assert_eq!(step.run(r#"{"id":1,"text":"grün"}"#).unwrap(), [r#"{"id":1,"text":"GRÜN"}"#]);
    }

    #[test]
    fn a_job_without_the_text_is_rejected() {
        let mut step = Harness::<Uppercase>::new(r#"{"field": "name"}"#).unwrap();
        let failure = step.run(r#"{"text":"a"}"#).unwrap_err();
        assert_eq!((failure.kind, &*failure.message), (FailureKind::Rejected, "the job has no text `name`"));
    }

    #[test]
    fn a_config_with_another_key_is_refused() {
        assert!(Harness::<Uppercase>::new(r#"{"feld": "name"}"#).unwrap_err().message.contains("feld"));
    }
}
