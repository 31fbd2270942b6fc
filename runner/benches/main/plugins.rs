//! Cost of native plugins: a call, a call that parses one field against the same in Rhai, and a step in a
//! process of its own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_components::plugin::{Image, Loaded, PluginRunner, PluginSpec};
use tidegate_components::script::{EntryPoint, ScriptOutlet, ScriptStep, ScriptStepSpec, ScriptTables};
use tidegate_config::{Limits, Script, StepFilter};
use tidegate_model::TokenKey;
use tidegate_plugin::{Failure, Job, Outputs, Step};

use crate::paths;

/// Nanoseconds per job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) built_in: f64,
    pub(crate) plugin: f64,
    pub(crate) field: f64,
    pub(crate) script: f64,
}

const JOBS: u64 = 1 << 20;
const BATCH: u64 = 1024;
const ROUNDS: usize = 9;

/// The folder of the plugins that cargo builds for this program.
pub(crate) fn folder() -> Result<PathBuf, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("a program has a folder")?.to_owned())
}

/// Builds the plugin that is measured.
pub(crate) fn build() -> Result<(), Box<dyn Error>> {
    let folder = folder()?;
    let status = Command::new(env!("CARGO"))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--quiet", "--release", "-p", "measure", "--target-dir"])
        .arg(folder.parent().ok_or("a profile has a folder")?)
        .status()?;
    if status.success() { Ok(()) } else { Err("the plugin does not build".into()) }
}

pub(crate) fn calls() -> Result<Calls, Box<dyn Error>> {
    let loaded = Loaded::open(Image::read(&folder()?.join("libmeasure.so"))?)?;
    let spec = PluginSpec {
        named: "measure",
        pipeline: "bench",
        step: "step",
        config: &json!({}),
        secrets: &[],
        bindings: &[""],
        timeout: Some(Duration::from_secs(10)),
        memory: 64 << 20,
        token_key: &TokenKey::NONE,
        earlier: 0,
    };
    let runner = |step| {
        let plugin = loaded.plugin()?;
        let offer = plugin.offer(step).ok_or("the plugin lacks a step")?;
        Ok::<_, Box<dyn Error>>(PluginRunner::new(offer, &spec))
    };
    let (mut pass, mut field, mut script) = (runner("pass")?, runner("field")?, script()?);
    let mut figures = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        figures[0].push(nanos(&mut BuiltIn)?);
        figures[1].push(nanos(&mut pass)?);
        figures[2].push(nanos(&mut field)?);
        figures[3].push(nanos(&mut script)?);
    }
    let [built_in, plugin, field, script] = figures.map(|mut values| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    });
    Ok(Calls { built_in, plugin, field, script })
}

/// The Rhai equivalent of `field`.
fn script() -> Result<ScriptStep, Box<dyn Error>> {
    let text = "fn process(job) { job.id }".to_owned();
    let path = Path::new("field.rhai").to_owned();
    let scripts =
        [Script { named_in: path.clone(), path, text: text.into(), imports: Vec::new(), named_at: 0..0 }];
    let spec = ScriptStepSpec {
        tables: &ScriptTables::default(),
        pipeline: "bench",
        step: "step",
        scripts: &scripts,
        filter: &StepFilter::default(),
        limits: &Limits::default(),
        timeout: Some(Duration::from_secs(10)),
        config: &json!({}),
        secrets: &[],
        file: "bench.toml",
        take: tidegate_config::InputMode::From,
        outlet: ScriptOutlet::Unnamed,
        entry: EntryPoint::Process,
        inputs: &[],
        parts: &[],
        outputs: &[],
        token_key: &TokenKey::NONE,
    };
    ScriptStep::new(&spec).map_err(|error| error.message.into())
}

/// A step of the runner's own that does nothing.
struct BuiltIn;

impl Step for BuiltIn {
    fn process(&mut self, job: &Job<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
        if let Some(payloads) = outputs.get_mut(0) {
            payloads.push(job.payload);
        }
        Ok(())
    }
}

fn nanos(step: &mut dyn Step) -> Result<f64, Failure> {
    let payload = paths::job(123_456);
    let mut outputs = Outputs::new([""]);
    let begun = Instant::now();
    for batch in 0..JOBS / BATCH {
        outputs.clear();
        for number in 0..BATCH {
            let index = batch * BATCH + number + 1;
            let job = Job::new(index, payload.as_bytes());
            step.process(&job, &mut outputs)?;
        }
        assert_eq!(outputs.total() as u64, BATCH);
    }
    #[expect(clippy::cast_precision_loss, reason = "a million is far below 2^52")]
    Ok(begun.elapsed().as_secs_f64() * 1e9 / JOBS as f64)
}
