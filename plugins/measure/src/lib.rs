//! Steps for the bench: do almost nothing, so that the cost of a plugin remains.

use serde::Deserialize;
use tidegate_plugin::{Context, Failure, Job, Outlet, PluginStep};

/// No settings.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Passes jobs on unchanged.
#[derive(Debug)]
pub struct Pass;

/// Parses one field of a job, and passes it on.
#[derive(Debug)]
pub struct Field;

impl PluginStep for Pass {
    const NAME: &'static str = "pass";
    const DESCRIPTION: &'static str = "passes jobs on unchanged";
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        outlet.push(job.payload)
    }
}

impl PluginStep for Field {
    const NAME: &'static str = "field";
    const DESCRIPTION: &'static str = "passes on the job's id";
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let id: u64 = job.field("id")?;
        outlet.give(&id)
    }
}

tidegate_plugin::export_plugin!(Pass, Field);

#[cfg(test)]
mod tests {
    use tidegate_plugin::testing::Harness;

    use super::{Field, Pass};

    #[test]
    fn the_steps_that_are_measured_pass_a_job_or_one_field_on() {
        assert_eq!(Harness::<Pass>::new("{}").unwrap().run("[1]").unwrap(), ["[1]"]);
        assert_eq!(Harness::<Field>::new("{}").unwrap().run(r#"{"id":7,"x":[]}"#).unwrap(), ["7"]);
    }
}
