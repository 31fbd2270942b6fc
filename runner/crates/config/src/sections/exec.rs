//! `ExecCommand`: parses `exec = { … }`, the command that `builtin:exec` runs for each job.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use crate::diagnostic::Diagnostic;
use crate::parse::context::{ParseContext, Text};
use crate::parse::field::Field;
use crate::parse::keys::TableKind;
use crate::parse::table::TableReader;
use crate::parse::template::{template, templates};
use tidegate_model::parse_duration;
use tidegate_model::template::Template;

/// The prefix of the environment variables that Tidegate sets.
const OURS: &str = "TIDEGATE_";

/// The system's default search path.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// A command for each job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecCommand {
    /// A path, or a name that is searched in `PATH`.
    pub program: PathBuf,
    pub arguments: Vec<Template>,
    /// In addition to the runner's environment.
    pub environment: Vec<(String, Template)>,
    /// Its working folder.
    pub folder: PathBuf,
    /// `None`: the time of the attempt.
    pub timeout: Option<Duration>,
}

/// Parses `exec = { … }`.
pub(crate) fn options(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<ExecCommand> {
    let before = reading.diagnostics.len();
    let section = TableReader::open(reading, TableKind::Exec, "exec", field.value())?;
    let help = "write the command and its arguments: `command = [\"./charge.sh\", \"{id}\"]`";
    let texts = section.required(reading, "command", help).and_then(|field| words(reading, field));
    let command = texts.and_then(|texts| command(reading, &texts));
    let environment = section.field("env").map(|field| environment(reading, field));
    let folder = section.field("cwd").and_then(|field| folder(reading, field));
    let timeout = section
        .field("timeout")
        .and_then(|field| field.quantity(reading, ("duration", "5s"), parse_duration, Some(&Duration::ZERO)));
    let (program, arguments) = command?;
    (reading.diagnostics.len() == before).then(|| ExecCommand {
        program,
        arguments,
        environment: environment.unwrap_or_default(),
        folder: folder.unwrap_or_else(|| own_folder(reading)),
        timeout,
    })
}

/// The folder of the file, in which its commands run.
pub(crate) fn own_folder(reading: &ParseContext<'_>) -> PathBuf {
    let folder = reading.folder();
    // A file that is named without a folder is in the current one.
    if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_path_buf() }
}

/// A list, since a text would need a shell's parser.
pub(crate) fn words(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<Vec<Text>> {
    let value = field.value().get_ref();
    if value.is_str() {
        let place = field.place(reading);
        let message = "`command` must be a list of texts, but is a text";
        let help =
            "no shell takes it apart: write each argument by itself, `command = [\"./charge.sh\", \"{id}\"]`";
        reading.report(Diagnostic::error_at(&place, message).help(help));
        return None;
    }
    field.texts(reading)
}

fn command(reading: &mut ParseContext<'_>, texts: &[Text]) -> Option<(PathBuf, Vec<Template>)> {
    let templates: Vec<Option<Template>> = texts.iter().map(|text| template(reading, text)).collect();
    let (first, arguments) = texts.split_first()?;
    let (program, filled) = templates.split_first()?;
    let program = program.as_ref().and_then(|program| {
        if program.is_fixed() {
            return executable(reading, first, &program.reveal()?);
        }
        let message = "the command must be fixed: a job could otherwise choose the program";
        let help = "name the command, and use fields in its arguments";
        reading.report(Diagnostic::error_at(&first.place, message).help(help));
        None
    });
    let filled: Vec<Template> = filled.iter().flatten().cloned().collect();
    (filled.len() == arguments.len()).then_some(())?;
    Some((program?, filled))
}

/// A command with a `/` is a path, relative to the file that names it, and must exist.
pub(crate) fn executable(reading: &mut ParseContext<'_>, text: &Text, written: &str) -> Option<PathBuf> {
    if written.is_empty() || written.contains('\0') {
        let message = "the command has no name";
        reading
            .report(Diagnostic::error_at(&text.place, message).help("write `command = [\"./charge.sh\"]`"));
        return None;
    }
    reading.depends_on_disk = true;
    if !written.contains('/') {
        reading.doubts.extend(nowhere(reading, text, written));
        return Some(written.into());
    }
    let path = reading.folder().join(written);
    let named = if text.secret { "named here".into() } else { text.quoted() };
    let (message, help) = match std::fs::metadata(&path) {
        Err(_) => {
            (format!("the command {named} does not exist"), "a path is relative to the file that names it")
        }
        Ok(found) if found.is_dir() => (format!("the command {named} is a folder"), "name a file"),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            (format!("the command {named} cannot be executed"), "make it executable with `chmod +x`")
        }
        Ok(_) => return Some(path),
    };
    reading.sought.push(path);
    reading.report(Diagnostic::error_at(&text.place, message).help(help));
    None
}

/// The error of a name that is not in `PATH`. It may be installed later, or on the runner's machine.
fn nowhere(reading: &ParseContext<'_>, text: &Text, name: &str) -> Option<Diagnostic> {
    let path = reading.variable("PATH").unwrap_or_else(|| PATH_DEFAULT.to_owned());
    if std::env::split_paths(&path).any(|folder| folder.join(name).is_file()) || text.secret {
        return None;
    }
    let help = if reading.folder().join(name).is_file() {
        format!("for the one beside this file, write `./{name}`")
    } else {
        "install it, or write a path, which is relative to this file: `./charge.sh`".to_owned()
    };
    let message = format!("the command {} is not in `PATH`", text.quoted());
    Some(Diagnostic::warning_at(&text.place, message).help(help))
}

fn environment(reading: &mut ParseContext<'_>, field: Field<'_>) -> Vec<(String, Template)> {
    let mut environment = Vec::new();
    for (key, template) in templates(reading, field) {
        if is_variable(reading, &key) {
            environment.push((key.value, template));
        }
    }
    environment
}

/// Whether a key of `env` can be set; otherwise it is reported.
pub(crate) fn is_variable(reading: &mut ParseContext<'_>, key: &Text) -> bool {
    if key.value.is_empty() || key.value.contains(['=', '\0']) {
        let message = format!("{} is not a name of a variable", key.quoted());
        reading.report(Diagnostic::error_at(&key.place, message));
        return false;
    }
    if key.value.starts_with(OURS) {
        let message = format!("{} is reserved for Tidegate", key.quoted());
        let help = "use a name that does not start with `TIDEGATE_`";
        reading.report(Diagnostic::error_at(&key.place, message).help(help));
        return false;
    }
    true
}

pub(crate) fn folder(reading: &mut ParseContext<'_>, field: Field<'_>) -> Option<PathBuf> {
    let path = field.path(reading)?;
    reading.depends_on_disk = true;
    if !path.value.is_dir() {
        let message = "the folder of `cwd` does not exist";
        let help = "a path is relative to the file that names it";
        reading.report(Diagnostic::error_at(&path.place, message).help(help));
        reading.sought.push(path.value);
        return None;
    }
    Some(path.value)
}
