//! Digest of the runner's settings: the tables `[runner]`, `[log]`, `[reload]` and `[plugin.NAME]`.

use super::aspect::RunnerAspect;
use super::encoder::Encoder;
use super::setting::{PartDigest, Scope};
use crate::model::{Configuration, LogFormat, LogSettings, ReloadSettings, Settings, WatchErrors};

pub(super) fn digest(scope: &Scope<'_>, configuration: &Configuration) -> PartDigest<RunnerAspect> {
    let Settings { workers, shutdown_timeout, plugins, pins, listen, hosts, reload } =
        &configuration.settings;
    let LogSettings { level, format } = &configuration.log;
    let mut digest = PartDigest::new();
    digest.add(scope, RunnerAspect::Data, "runner.data", |it| it.path(&configuration.data));
    digest.add(scope, RunnerAspect::Listen, "runner.listen", |it| {
        it.optional(listen.as_ref(), "none", super::encoder::Encoder::word);
    });
    digest.add(scope, RunnerAspect::Hosts, "runner.hosts", |it| {
        it.list(hosts.iter(), |it, host| it.text(host));
    });
    digest.add(scope, RunnerAspect::Workers, "runner.workers", |it| it.number(*workers as u64));
    digest.add(scope, RunnerAspect::ShutdownTimeout, "runner.shutdown_timeout", |it| {
        it.optional(*shutdown_timeout, "30s", super::encoder::Encoder::duration);
    });
    digest.add(scope, RunnerAspect::Plugins, "runner.plugins", |it| {
        it.list(plugins.iter(), |it, folder| it.path(folder));
    });
    for (name, pin) in pins {
        let key = format!("plugin.{name}.sha256");
        digest.add(scope, RunnerAspect::Plugins, key, |it| it.hash(&pin.sha256));
    }
    digest.add(scope, RunnerAspect::Log, "log.level", |it| it.text(level));
    digest.add(scope, RunnerAspect::Log, "log.format", |it| {
        it.word(match format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        });
    });
    let ReloadSettings { watch, poll, tests, watch_errors } = reload;
    digest.add(scope, RunnerAspect::Reload, "reload.watch", |it| it.flag(*watch));
    digest.add(scope, RunnerAspect::Reload, "reload.poll", |it| {
        it.optional(*poll, "none", Encoder::duration);
    });
    digest.add(scope, RunnerAspect::Reload, "reload.tests", |it| it.flag(*tests));
    digest.add(scope, RunnerAspect::Reload, "reload.watch_errors", |it| {
        it.optional(watch_errors.as_ref(), "none", |it, WatchErrors { rate, within }| {
            it.float(*rate);
            it.between(" within ");
            it.duration(*within);
        });
    });
    digest
}
