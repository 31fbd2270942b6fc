//! `Target`: the configuration and the store that the arguments of a command name.

pub(crate) mod ipc;
pub(crate) mod where_filter;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::ipc::{IpcAnswer, IpcRefusal, Question};
use super::cli::QueryOptions;
pub(crate) use crate::output::console::print;
use crate::output::exit;
use crate::output::exit::Exit;
use crate::query::{Answer, ConfigurationPlace, Query, answer};
use crate::reload::Reloaded;
use tidegate_config::{Configuration, Diagnostic, Diagnostics, LoadOptions, Severity, shown};
use tidegate_engine::{Chain, Generation, Request, RequestOutcome};
use tidegate_engine::{apply, mark_bindings};
pub(crate) use tidegate_model::plain::{json as plain_json, lines as plain};
use tidegate_model::{Clock as _, SystemClock};
use tidegate_store::{OpenError, Store, Writer};

/// How long a command waits for a store that another command holds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a command waits for a store that a runner seems to hold. The process id may be that of a process
/// that ended.
const GRACE: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(10);

/// The options for reading configurations, with the environment of the process.
pub(crate) fn options(data: Option<PathBuf>, plugins: &[PathBuf]) -> LoadOptions {
    LoadOptions { data, plugins: plugins.to_vec(), ..LoadOptions::default() }
}

/// The configuration of a command, and its data folder.
pub(crate) struct CommandTarget {
    pub(crate) configuration: Arc<Configuration>,
    /// Its mistakes: some `${…}` have no value. The store can be read with it, and not be changed.
    mistakes: Option<Diagnostics>,
}

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnsweredBy {
    Runner,
    /// The store; no runner is running.
    Store,
}

/// The runner or the store that can answer.
enum Backend {
    Runner(IpcAnswer),
    Store(Store, Writer),
}

/// Asks the runner, or the store if no runner is running.
pub(crate) fn ask(look: &QueryOptions, query: Query) -> Result<Answer, Exit> {
    CommandTarget::of(&look.config, look.data.clone())?.ask(query)
}

/// The configuration of the runner on this data folder. `None`: no runner answers; the command itself reports that.
fn place_of_runner(data: &Path) -> Option<ConfigurationPlace> {
    match ipc::ask(data, &Question::Look(Query::Place)) {
        Ok(Some(Ok(IpcAnswer::Answer(Answer::Place(place))))) => Some(place),
        _ => None,
    }
}

/// Whether nothing is at this path, and it is not that of a configuration which was deleted beneath its runner. Without a
/// runner, `names_data` decides: the store is the one that `--data` names.
fn is_another(config: &Path, data: &Path, names_data: bool) -> bool {
    let named = ConfigurationPlace::of(config);
    named.is_gone() && place_of_runner(data).map_or(!names_data, |place| place.differs(&named))
}

impl CommandTarget {
    pub(crate) fn of(config: &Path, data: Option<PathBuf>) -> Result<Self, Exit> {
        let options = options(data, &[]);
        match Generation::read(config, &options) {
            Ok(generation) => Ok(generation.configuration.into()),
            Err(diagnostics) => {
                // A runner goes on with the configuration that it has, and can answer.
                match Generation::valid_part(config, &options) {
                    Ok(part) if ipc::is_answered(&part.data) && !is_another(config, &part.data, false) => {
                        Ok(Arc::new(part).into())
                    }
                    _ => Self::without_unset(config, options, diagnostics),
                }
            }
        }
    }

    /// The configuration on disk, whether a runner is running or not. A `${…}` may have no value.
    pub(crate) fn to_look(config: &Path, data: Option<PathBuf>) -> Result<Self, Exit> {
        let options = options(data, &[]);
        match Generation::read(config, &options) {
            Ok(generation) => Ok(generation.configuration.into()),
            Err(diagnostics) => Self::without_unset(config, options, diagnostics),
        }
    }

    /// Warns of each `${…}` that has no value, if the configuration has no other mistakes.
    fn without_unset(config: &Path, options: LoadOptions, mistakes: Diagnostics) -> Result<Self, Exit> {
        match Generation::without_unset(config, options) {
            Some((configuration, unset)) => {
                warn_once(&unset, &mistakes);
                Ok(Self { configuration: Arc::new(configuration), mistakes: Some(mistakes) })
            }
            None => {
                exit::show(&mistakes);
                Err(Exit::Configuration)
            }
        }
    }

    /// As [`Self::of`], also for a configuration with mistakes.
    pub(crate) fn with_mistakes(config: &Path, options: &LoadOptions) -> Result<Self, Exit> {
        let diagnostics = match Generation::valid_part(config, options) {
            // Without pipelines and state, the folder is another one than was meant.
            Ok(part)
                if part.pipelines.is_empty() && !tidegate_store::exists(&part.data)
                    || is_another(config, &part.data, options.data.is_some()) =>
            {
                Generation::read(config, options).err()
            }
            Ok(part) => return Ok(Arc::new(part).into()),
            Err(diagnostics) => Some(diagnostics),
        };
        diagnostics.iter().for_each(exit::show);
        Err(Exit::Configuration)
    }

    /// Asks the runner. `None`: no runner is running.
    pub(crate) fn ask_runner(&self, query: Query) -> Result<Option<Answer>, Exit> {
        let question = Question::Look(query);
        match ipc::ask(&self.configuration.data, &question) {
            Ok(Some(Ok(IpcAnswer::Answer(answer)))) => Ok(Some(answer)),
            Ok(Some(Ok(_))) => Err(other_question()),
            Ok(Some(Err(IpcRefusal::Closed(why) | IpcRefusal::Other(why)))) => Err(exit::fail(why)),
            Ok(None) => Ok(None),
            Err(error) => Err(no_answer(&question, &error)),
        }
    }

    pub(crate) fn ask(&self, query: Query) -> Result<Answer, Exit> {
        self.ask_runner_or_store(query).map(|(answer, _)| answer)
    }

    /// As [`Self::ask`], and returns the source of the answer.
    pub(crate) fn ask_runner_or_store(&self, query: Query) -> Result<(Answer, AnsweredBy), Exit> {
        match self.ask_if_any(query)? {
            Some(answer) => Ok(answer),
            None => Err(exit::fail(no_state(&self.configuration))),
        }
    }

    /// As [`Self::ask_runner_or_store`]. `None`: neither a runner nor a store exists.
    pub(crate) fn ask_if_any(&self, query: Query) -> Result<Option<(Answer, AnsweredBy)>, Exit> {
        let question = Question::Look(query);
        let Some(backend) = self.find(&question, tidegate_store::open_existing)? else { return Ok(None) };
        let answer = match backend {
            Backend::Runner(IpcAnswer::Answer(answer)) => Ok((answer, AnsweredBy::Runner)),
            Backend::Runner(IpcAnswer::Change(_) | IpcAnswer::Reload(_) | IpcAnswer::Compared(_)) => {
                Err(other_question())
            }
            Backend::Store(store, _writer) => {
                let Question::Look(query) = &question else { return Err(other_question()) };
                let configuration = mark_bindings(&self.configuration, &store);
                let configuration = configuration.map_err(|error| exit::fail(Chain(&error)))?;
                let answer = answer(&store, &configuration, None, query);
                answer.map(|answer| (answer, AnsweredBy::Store)).map_err(|error| exit::fail(Chain(&error)))
            }
        };
        answer.map(Some)
    }

    /// The configuration of the runner, if a runner is running and its configuration is not that of the command.
    pub(crate) fn other_configuration(&self) -> Option<String> {
        let own = ConfigurationPlace::of(&self.configuration.given.config);
        let place = place_of_runner(&self.configuration.data)?;
        place.differs(&own).then_some(place.path)
    }

    /// Warns if the runner reads another configuration than the command names.
    pub(crate) fn warn_of_other_configuration(&self) {
        if let Some(path) = self.other_configuration() {
            let named = shown(&self.configuration.given.config);
            exit::warn(format_args!("the runner reads `{path}`, and not `{named}`"));
        }
    }

    /// Lets the runner read its configuration again.
    pub(crate) fn reload(&self) -> Result<Reloaded, Exit> {
        let data = shown(&self.configuration.data);
        self.take_over(&Question::Reload)?.ok_or_else(|| {
            exit::fail(format_args!(
                "no runner is running on `{data}`: the next `tidegate run` reads the files anyway"
            ))
        })
    }

    /// Lets the runner go back to an earlier generation. `None`: no runner is running.
    pub(crate) fn roll_back(&self, generation: Option<u64>) -> Result<Option<Reloaded>, Exit> {
        self.take_over(&Question::Rollback { generation })
    }

    /// Lets the runner compare the files with the generation in force. `None`: no runner answers.
    pub(crate) fn compare(&self) -> Option<bool> {
        match ipc::ask(&self.configuration.data, &Question::Compare) {
            Ok(Some(Ok(IpcAnswer::Compared(same)))) => Some(same),
            _ => None,
        }
    }

    fn take_over(&self, question: &Question) -> Result<Option<Reloaded>, Exit> {
        match ipc::ask(&self.configuration.data, question) {
            Ok(Some(Ok(IpcAnswer::Reload(reloaded)))) => Ok(Some(reloaded)),
            Ok(Some(Ok(_))) => Err(other_question()),
            Ok(Some(Err(IpcRefusal::Closed(why) | IpcRefusal::Other(why)))) => Err(exit::fail(why)),
            Ok(None) => Ok(None),
            Err(error) => Err(no_answer(question, &error)),
        }
    }

    /// Makes a change, by the runner or in the store. The inner error is the reason for its refusal.
    pub(crate) fn change(
        &self,
        request: Request,
    ) -> Result<(Result<RequestOutcome, String>, AnsweredBy), Exit> {
        let question = Question::Change(request);
        // A pushed job may be the first of the store.
        let pushes = matches!(question, Question::Change(Request::Push { .. })) && self.mistakes.is_none();
        let open = |data: &Path| {
            if pushes { tidegate_store::open(data).map(Some) } else { tidegate_store::open_existing(data) }
        };
        let Some(backend) = self.find(&question, open)? else {
            return Err(exit::fail(no_state(&self.configuration)));
        };
        match backend {
            Backend::Runner(IpcAnswer::Change(outcome)) => Ok((outcome, AnsweredBy::Runner)),
            Backend::Runner(IpcAnswer::Answer(_) | IpcAnswer::Reload(_) | IpcAnswer::Compared(_)) => {
                Err(other_question())
            }
            Backend::Store(..) if self.mistakes.is_some() => {
                self.mistakes.iter().for_each(exit::show);
                Err(Exit::Configuration)
            }
            Backend::Store(store, mut writer) => {
                let Question::Change(request) = &question else { return Err(other_question()) };
                let configuration = mark_bindings(&self.configuration, &store);
                let configuration = configuration.map_err(|error| exit::fail(Chain(&error)))?;
                let effect = apply(&store, &configuration, request, SystemClock.now());
                let outcome = match effect {
                    Ok(effect) => {
                        writer.commit(&effect.changes).map_err(|error| exit::fail(Chain(&error)))?;
                        Ok(effect.request_outcome)
                    }
                    Err(why) => Err(why),
                };
                Ok((outcome, AnsweredBy::Store))
            }
        }
    }

    /// Connects to the runner, or opens the store if no runner is running. `None`: no store exists either.
    fn find(
        &self,
        question: &Question,
        open: impl Fn(&Path) -> Result<Option<(Store, Writer)>, OpenError>,
    ) -> Result<Option<Backend>, Exit> {
        let data = &self.configuration.data;
        let started = Instant::now();
        loop {
            match ipc::ask(data, question) {
                Ok(Some(Ok(answer))) => return Ok(Some(Backend::Runner(answer))),
                Ok(Some(Err(IpcRefusal::Closed(_)))) if started.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                    continue;
                }
                Ok(Some(Err(IpcRefusal::Closed(why) | IpcRefusal::Other(why)))) => {
                    return Err(exit::fail(why));
                }
                Ok(None) => {}
                Err(error) => return Err(no_answer(question, &error)),
            }
            match open(data) {
                Ok(Some((store, writer))) => return Ok(Some(Backend::Store(store, writer))),
                Ok(None) => return Ok(None),
                // Another command has the store open, or a runner is starting and answers within seconds.
                Err(OpenError::Locked { .. }) if started.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(exit::fail(Chain(&error))),
            }
        }
    }
}

impl From<Arc<Configuration>> for CommandTarget {
    fn from(configuration: Arc<Configuration>) -> Self {
        Self { configuration, mistakes: None }
    }
}

/// Names the `${…}` without a value, once for all queries of a command. Mistakes in scripts do not hinder a command that
/// looks, so that only their number is shown.
fn warn_once(unset: &[String], mistakes: &Diagnostics) {
    static WARNED: Once = Once::new();
    let is_other = |one: &&Diagnostic| one.severity == Severity::Error && !unset.contains(&one.message);
    let others = match mistakes.iter().filter(is_other).count() {
        0 => String::new(),
        1 => "; it has 1 other mistake, which `tidegate check` shows".to_owned(),
        more => format!("; it has {more} other mistakes, which `tidegate check` shows"),
    };
    WARNED.call_once(|| {
        let unset = unset.join("; ");
        exit::warn(format_args!("the configuration is read without its values: {unset}{others}"));
    });
}

/// Reports an answer that does not match the question.
pub(crate) fn other_question() -> Exit {
    exit::fail("the answer of the runner does not match the question: its version may differ")
}

fn no_answer(question: &Question, error: &io::Error) -> Exit {
    exit::fail(unanswered(question, error))
}

fn unanswered(question: &Question, error: &io::Error) -> String {
    let what = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            "the runner does not answer in time: its process may be stopped, or its disk full".to_owned()
        }
        io::ErrorKind::UnexpectedEof => "the runner has ended without an answer".to_owned(),
        _ => format!("the runner does not answer: {error}"),
    };
    let unknown = match question {
        Question::Look(_) | Question::Compare => "",
        Question::Reload | Question::Rollback { .. } => "; `tidegate history` shows whether it has reloaded",
        Question::Change(_) => "; the change may have been made: check the state before you repeat it",
    };
    format!("{what}{unknown}")
}

/// Opens a store. Read access waits for another process to release it.
pub(crate) fn open_patiently<T>(open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let started = Instant::now();
    loop {
        match open() {
            Err(OpenError::Locked { holder, .. })
                if started.elapsed() < (if holder.runs() { GRACE } else { PATIENCE }) =>
            {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

pub(crate) fn no_state(configuration: &Configuration) -> String {
    let (data, run) = (shown(&configuration.data), configuration.command("run"));
    format!("the store `{data}` does not exist yet: `{run}` creates it")
}

/// Prints `value` as JSON on standard output.
pub(crate) fn print_json(value: &impl Serialize, exit: Exit) -> Exit {
    match serde_json::to_string_pretty(value) {
        Ok(text) => {
            print_lines(&plain_json(&text));
            exit
        }
        Err(error) => exit::fail(error),
    }
}

/// Prints text for people. Text of external systems may hold control characters, which must not reach a
/// terminal.
pub(crate) fn print_text(text: &str) {
    print_lines(&plain(text));
}

/// Prints text that is already plain, and may have colours.
pub(crate) fn print_painted(text: &str) {
    print_lines(text);
}

/// Prints to standard output; a reader that closed the pipe is no error.
fn print_lines(text: &str) {
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    print([text, end].concat().as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_that_does_not_answer_is_told_in_one_sentence() {
        let message = |kind: io::ErrorKind| unanswered(&Question::Look(Query::Queues), &kind.into());
        let late = "the runner does not answer in time: its process may be stopped, or its disk full";
        assert_eq!(message(io::ErrorKind::WouldBlock), late);
        assert_eq!(message(io::ErrorKind::TimedOut), late);
        assert_eq!(message(io::ErrorKind::UnexpectedEof), "the runner has ended without an answer");
        assert_eq!(message(io::ErrorKind::BrokenPipe), "the runner does not answer: broken pipe");
    }
}
