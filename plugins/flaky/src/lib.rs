//! `Flaky`: misbehaves on request, for tests of plugin hosts; the field `do` of each job selects how.

use std::hint::black_box;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_plugin::{Cause, Context, Failure, Job, Outlet, PluginStep};

/// `config` of the step.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Fails when it is created.
    pub fail_in_create: bool,
    /// Panics when it is created.
    pub panic_in_create: bool,
    /// Fails to create unless this file exists.
    pub needs: Option<PathBuf>,
    /// The failure without the file.
    pub without: Without,
    /// Panics when it is dropped.
    pub panic_in_drop: bool,
    /// Leaves a thread that holds the context for this many milliseconds.
    pub leave_thread_ms: Option<u64>,
    /// Milliseconds of its drop.
    pub slow_drop_ms: u64,
}

/// The result of `create` without the file that it needs.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Without {
    #[default]
    Fail,
    Retry,
    /// In 20 ms.
    RetryIn,
    GateClosed,
    /// As `gate_closed`, and creates the file.
    GateClosedOnce,
}

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(default, rename = "do")]
    act: Act,
    /// MiB for `allocate`, and the length of the handle for `pending`.
    #[serde(default)]
    mib: usize,
    /// For `because`.
    #[serde(default)]
    cause: String,
    /// For `spread` and `place`.
    #[serde(default)]
    id: serde_json::Value,
    /// Milliseconds for `wait`, `place`, `allocate` and `retry_in`.
    #[serde(default)]
    ms: u64,
}

/// The request of a job; without it the job is passed on.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Act {
    #[default]
    Pass,
    Drop,
    Fail,
    Retry,
    RetryIn,
    Reject,
    GateClosed,
    Pending,
    /// Passes the job on and leaves it pending.
    PushPending,
    /// Leaves the job pending, with its token as the handle.
    Token,
    Panic,
    Abort,
    /// Removes the file that it needs, and panics.
    PanicForGood,
    /// Removes the file that it needs, and ends the process.
    AbortForGood,
    /// Never returns, and does not check whether it should.
    Hang,
    /// Returns on the request to stop.
    Obey,
    /// Passes the job on after `ms`.
    Wait,
    /// Allocates `mib` of memory for `ms`, and passes the job on.
    Allocate,
    /// Allocates `mib` of memory and keeps it for ever.
    Leak,
    /// Pushes a text that is not JSON.
    Garble,
    /// Pushes JSON over several lines.
    Pretty,
    Log,
    /// Pushes the identity of the job.
    Identify,
    /// Fails with the cause in `cause`.
    Because,
    /// Pushes `mib` MiB in several outputs, and ignores every result.
    Flood,
    /// Pushes `mib` outputs of 1 MiB, each with the `id` of the job.
    Spread,
    /// Pushes its process and thread after `ms`, with the `id` of the job.
    Place,
    /// Leaves a value in the thread whose destructor runs when the thread ends.
    ThreadLocal,
}

/// The identity of a job.
#[derive(Debug, Serialize)]
struct Known {
    hash: String,
    piece: u32,
    index: u64,
    attempt: u32,
    token: Option<String>,
}

/// The step.
#[derive(Debug)]
pub struct Flaky {
    config: Config,
    context: Context,
    leaked: Vec<Vec<u8>>,
}

impl PluginStep for Flaky {
    const NAME: &'static str = "flaky";
    const DESCRIPTION: &'static str = "misbehaves on request";
    const EFFECTS: bool = true;
    type Config = Config;

    fn schema() -> Option<String> {
        tidegate_plugin::schema_of::<Config>()
    }

    fn create(config: Config, context: &Context) -> Result<Self, Failure> {
        assert!(!config.panic_in_create, "create, as asked");
        if config.fail_in_create {
            return Err(Failure::failed("not created, as asked"));
        }
        if let Some(file) = config.needs.as_ref().filter(|file| !file.exists()) {
            let why = "the file that it needs is missing";
            return Err(match config.without {
                Without::Fail => Failure::failed(why),
                Without::Retry => Failure::retry(why),
                Without::RetryIn => Failure::retry_in(Duration::from_millis(20), why),
                Without::GateClosed => Failure::gate_closed(why),
                Without::GateClosedOnce => {
                    std::fs::write(file, "")?;
                    Failure::gate_closed(why)
                }
            });
        }
        Ok(Self { config, context: context.clone(), leaked: Vec::new() })
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        let Request { act, mib, ms, cause, id } = job.parse()?;
        let time = Duration::from_millis(ms);
        match act {
            Act::Pass => {}
            Act::Drop => return Ok(()),
            Act::Fail => return Err(Failure::failed("failed, as asked")),
            Act::Retry => return Err(Failure::retry("busy")),
            Act::RetryIn => return Err(Failure::retry_in(time, "busy")),
            Act::Reject => return Err(Failure::reject("rejected, as asked")),
            Act::GateClosed => return Err(Failure::gate_closed("closed, as asked")),
            Act::Pending if mib > 0 => return Err(Failure::pending("x".repeat(mib << 20))),
            Act::Pending => return Err(Failure::pending("handle-7")),
            Act::PushPending => {
                outlet.push(job.payload)?;
                return Err(Failure::pending("handle-7"));
            }
            Act::Token => {
                return Err(Failure::pending(self.context.token(job).unwrap_or_else(|| "none".into())));
            }
            Act::Panic => panic!("panicked, as asked"),
            Act::Abort => std::process::abort(),
            Act::PanicForGood | Act::AbortForGood => {
                // Another instance may have removed it.
                if let Some(file) = self.config.needs.as_ref().filter(|file| file.exists()) {
                    std::fs::remove_file(file)?;
                }
                if matches!(act, Act::AbortForGood) {
                    std::process::abort();
                }
                panic!("panicked, as asked");
            }
            Act::Hang => loop {
                thread::sleep(Duration::from_secs(1));
            },
            Act::Obey => {
                while !self.context.stopping() {
                    thread::sleep(Duration::from_millis(1));
                }
                return Err(Failure::failed("stopped on request"));
            }
            Act::Wait => thread::sleep(time),
            Act::Allocate => {
                let memory = black_box(vec![1_u8; mib << 20]);
                thread::sleep(time);
                drop(memory);
            }
            Act::Leak => self.leaked.push(black_box(vec![1_u8; mib << 20])),
            Act::Garble => return outlet.push(b"{\"half\":"),
            Act::Pretty => return outlet.push(b"{\n  \"id\": 1,\r\n  \"text\": \"a\\nb\"\n}\n"),
            Act::Identify => {
                let token = self.context.token(job);
                let (hash, piece) = (format!("{:032x}", job.hash), job.piece);
                return outlet.give(&Known { hash, piece, index: job.index, attempt: job.attempt, token });
            }
            Act::Because => {
                let failure = Failure::failed("failed, as asked");
                return Err(match Cause::of_word(&cause) {
                    Some(cause) => failure.because(cause),
                    None => failure,
                });
            }
            Act::Flood => {
                let output = format!("\"{}\"", "x".repeat(1 << 10));
                for _ in 0..mib << 10 {
                    let _ = outlet.push(output.as_bytes()); // the runner refuses it
                }
                return Ok(());
            }
            Act::Spread => {
                let output = format!("{{\"id\":{id},\"text\":\"{}\"}}", "x".repeat(1 << 20));
                return (0..mib).try_for_each(|_| outlet.push(output.as_bytes()));
            }
            Act::Place => {
                thread::sleep(time);
                let place = format!("{} {:?}", std::process::id(), thread::current().id());
                return outlet.give(&serde_json::json!({ "id": id, "place": place }));
            }
            Act::ThreadLocal => drop(black_box(thread::current())),
            Act::Log => self.context.warn(format_args!("job {} asked for this", job.index)),
        }
        outlet.push(job.payload)
    }
}

impl Drop for Flaky {
    fn drop(&mut self) {
        thread::sleep(Duration::from_millis(self.config.slow_drop_ms));
        if let Some(ms) = self.config.leave_thread_ms {
            let context = self.context.clone();
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(ms));
                context.info("the thread that was left behind ends");
            });
        }
        assert!(!self.config.panic_in_drop, "drop, as asked");
    }
}

/// As [`Flaky`], without external effects.
#[derive(Debug)]
pub struct Calm(Flaky);

impl PluginStep for Calm {
    const NAME: &'static str = "calm";
    const DESCRIPTION: &'static str = "misbehaves on request, without effects";
    type Config = Config;

    fn schema() -> Option<String> {
        Flaky::schema()
    }

    fn create(config: Config, context: &Context) -> Result<Self, Failure> {
        Flaky::create(config, context).map(Self)
    }

    fn process(&mut self, job: &Job<'_>, outlet: &mut Outlet<'_>) -> Result<(), Failure> {
        self.0.process(job, outlet)
    }
}

tidegate_plugin::export_plugin!(Flaky, Calm);

#[cfg(test)]
mod tests {
    use tidegate_plugin::testing::{Ended, Harness, token};

    use super::Flaky;

    #[test]
    fn a_job_chooses_how_its_attempt_ends() {
        let mut flaky = Harness::<Flaky>::new("{}").unwrap();
        assert_eq!(flaky.run(r#"{"id":1}"#).unwrap(), [r#"{"id":1}"#]);
        for (act, kind) in
            [("fail", "failed"), ("retry", "retry"), ("reject", "rejected"), ("panic", "panicked")]
        {
            let failure = flaky.run(&format!(r#"{{"do":"{act}"}}"#)).unwrap_err();
            assert_eq!(failure.kind.as_str(), kind);
        }
        flaky.stop();
        assert_eq!(flaky.run(r#"{"do":"obey"}"#).unwrap_err().message, "stopped on request");
    }

    #[test]
    fn an_outside_system_knows_the_job_by_its_token() {
        let mut flaky = Harness::<Flaky>::new("{}").unwrap();
        let failure = flaky.run(r#"{"do":"token"}"#).unwrap_err();
        assert_eq!((failure.kind.as_str(), failure.message), ("pending", token(1)));
    }

    #[test]
    fn a_thread_that_it_leaves_behind_is_detected() {
        let flaky = Harness::<Flaky>::new(r#"{"leave_thread_ms": 5000}"#).unwrap();
        assert_eq!(flaky.close(), Ok(Ended::LeftBehind));
    }
}
