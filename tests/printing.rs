//! Printing runs: tests read their pipe at their own pace, which controls the progress of the run.

use std::io::Read as _;
use std::process::{Child, Stdio};

use crate::project::Project;
use crate::running::terminate;

/// Bytes of padding in each job: one read is larger than a pipe.
pub(crate) const PADDING: usize = 5000;

/// Large jobs with these numbers, one per line.
pub(crate) fn numbered(ids: impl IntoIterator<Item = u64>) -> String {
    let padding = "x".repeat(PADDING);
    let mut lines = String::new();
    for id in ids {
        lines.extend(["{\"id\":", &id.to_string(), ",\"padding\":\"", &padding, "\"}\n"]);
    }
    lines
}

/// Runs until `bytes` bytes are printed, then kills the run. Returns all that it has printed. Meanwhile it
/// can print at most the size of a pipe.
pub(crate) fn print_and_kill(project: &Project, bytes: usize) -> String {
    let mut child = start(project);
    let mut stdout = child.stdout.take().expect("it is a pipe");
    let mut printed = vec![0; bytes];
    stdout.read_exact(&mut printed).expect("it prints enough");
    child.kill().expect("a child can be killed");
    stdout.read_to_end(&mut printed).expect("the pipe can be read");
    let status = child.wait().expect("a child can be waited for");
    assert_eq!(status.code(), None, "it had ended before it was killed");
    String::from_utf8(printed).expect("output is text")
}

/// Runs until it prints, asks it to end, and does not read until it has. Returns its output and its exit
/// code.
pub(crate) fn print_and_stop_unread(project: &Project) -> (String, Option<i32>) {
    let mut child = start(project);
    let mut stdout = child.stdout.take().expect("it is a pipe");
    let mut printed = vec![0];
    stdout.read_exact(&mut printed).expect("it prints something");
    terminate(child.id());
    let status = child.wait().expect("a child can be waited for");
    stdout.read_to_end(&mut printed).expect("the pipe can be read");
    (String::from_utf8(printed).expect("output is text"), status.code())
}

/// The output of an undisturbed run.
pub(crate) fn print_to_the_end(project: &Project) -> String {
    project.run().done().stdout
}

fn start(project: &Project) -> Child {
    let mut command = project.command(&["run", "."]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().expect("the executable can be started")
}
