//! Steps for the bench: do almost nothing, so that the cost of a plugin remains.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// Consumes jobs, and declares effects.
#[derive(Debug)]
pub struct Act;

/// Fails twice on each job, and consumes it at the third attempt. It declares effects.
#[derive(Debug)]
pub struct Third;

/// Takes a second for each job, as if it waited for a service. It declares effects.
#[derive(Debug)]
pub struct Pause;

/// Returns the number of milliseconds by which a job is later than its `due`. It declares effects.
#[derive(Debug)]
pub struct Late;

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

impl PluginStep for Act {
    const NAME: &'static str = "act";
    const DESCRIPTION: &'static str = "consumes jobs, as if it acted on each";
    const EFFECTS: bool = true;
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, _: &Job<'_>, _: &mut Outlet<'_>) -> Result<(), Failure> {
        Ok(())
    }
}

impl PluginStep for Third {
    const NAME: &'static str = "third";
    const DESCRIPTION: &'static str = "fails twice on each job, then consumes it";
    const EFFECTS: bool = true;
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, job: &Job<'_>, _: &mut Outlet<'_>) -> Result<(), Failure> {
        if job.attempt < 3 { Err(Failure::retry("not yet")) } else { Ok(()) }
    }
}

impl PluginStep for Pause {
    const NAME: &'static str = "pause";
    const DESCRIPTION: &'static str = "consumes jobs, and takes a second for each";
    const EFFECTS: bool = true;
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, _: &Job<'_>, _: &mut Outlet<'_>) -> Result<(), Failure> {
        thread::sleep(Duration::from_secs(1));
        Ok(())
    }
}

impl PluginStep for Late {
    const NAME: &'static str = "late";
    const DESCRIPTION: &'static str = "outputs how late a job is";
    const EFFECTS: bool = true;
    type Config = Config;

    fn create(_: Config, _: &Context) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let due: i64 = job.field("due")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        outlet.give(&(i64::try_from(now).unwrap_or(i64::MAX) - due))
    }
}

tidegate_plugin::export_plugin!(Pass, Field, Act, Third, Pause, Late);

#[cfg(test)]
mod tests {
    use tidegate_plugin::testing::Harness;

    use super::{Act, Field, Late, Pass, Pause, Third};

    #[test]
    fn the_steps_with_effects_consume_their_jobs_and_one_of_them_fails_before() {
        assert!(Harness::<Act>::new("{}").unwrap().run("[1]").unwrap().is_empty());
        assert!(Harness::<Pause>::new("{}").unwrap().run("[1]").unwrap().is_empty());
        let late = Harness::<Late>::new("{}").unwrap().run(r#"{"due":1000}"#).unwrap();
        assert!(late[0].parse::<i64>().unwrap() > 1_000_000, "{late:?}");
        let failed = Harness::<Third>::new("{}").unwrap().run("[1]").unwrap_err();
        assert!(failed.to_string().contains("not yet"), "{failed}");
    }

    #[test]
    fn the_steps_that_are_measured_pass_a_job_or_one_field_on() {
        assert_eq!(Harness::<Pass>::new("{}").unwrap().run("[1]").unwrap(), ["[1]"]);
        assert_eq!(Harness::<Field>::new("{}").unwrap().run(r#"{"id":7,"x":[]}"#).unwrap(), ["7"]);
    }
}
