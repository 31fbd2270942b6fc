//! `describe`: runs a library in a process of its own to read its description. The runner survives any crash
//! of the library's code, and can name it.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_plugin::Level;

use super::description::Description;
use super::image::Image;
use super::in_process::Journal;
use super::isolated::parent::{ChildProcess, ChildState};
use super::isolated::protocol::{ChildAnswer, ChildRole};
use super::isolated::seal::random_key;
use tidegate_config::shown;
use tidegate_model::format_duration;

/// Maximum time of a library.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum bytes of its output that are kept.
const PRINTED_MAX: usize = 1 << 10;
/// The memory limit of the process, which is not enforced here.
const MEMORY: u64 = u64::MAX / 2;

/// A library without a valid description.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be used: {why}{}", shown(path), as_printed(printed))]
pub struct Undescribed {
    path: PathBuf,
    /// A sentence fragment.
    why: String,
    /// Its output, escaped for a message.
    printed: String,
}

impl Undescribed {
    /// The fix for the operator.
    pub(crate) fn help(&self) -> Option<String> {
        let why = &self.why;
        if why.contains("failed to map") {
            return Some("allow programs to run code from memory, or set TMPDIR to a folder that is not mounted `noexec`".into());
        }
        why.contains("cannot open shared object file").then(|| {
            let folder = self.path.parent().unwrap_or(&self.path);
            format!(
                "a library that brings others along finds them beside itself if it was linked with \
                 `-Wl,-rpath,'$ORIGIN'` and Tidegate may write to `{}`",
                shown(folder)
            )
        })
    }
}

/// The description of a library, and its output, escaped for a message.
pub(crate) fn describe(image: &Image) -> Result<(Description, String), Undescribed> {
    let failed = |why: String, printed: String| Undescribed { path: image.path().to_owned(), why, printed };
    let cannot =
        |error: io::Error| failed(format!("no process can be started for it: {error}"), String::new());
    let (ours, its) = UnixStream::pair().map_err(cannot)?;
    let reader = ours.try_clone().map_err(cannot)?;
    let printed = thread::Builder::new().name("plugin-prints".into()).spawn(move || read(reader));
    let printed = printed.map_err(cannot)?;
    let asked = ask(image, its);
    // A process that the library has started may hold the other end for ever.
    let _ = ours.shutdown(Shutdown::Read);
    let printed = printed.join().unwrap_or_default();
    match asked {
        Ok(description) => Ok((description, printed)),
        Err(why) => Err(failed(why, printed)),
    }
}

fn ask(image: &Image, prints: UnixStream) -> Result<Description, String> {
    let order = ChildRole::Describe { path: image.path().to_owned(), seal: random_key() };
    let journal: Arc<dyn Journal> = Arc::new(Nowhere);
    let started = ChildProcess::start(&order, image, MEMORY, &journal, Stdio::from(OwnedFd::from(prints)));
    let mut server = started.map_err(|error| format!("no process can be started for it: {error}"))?;
    let (until, mut answers) = (Instant::now() + PATIENCE, VecDeque::new());
    loop {
        let seen = server.look();
        let took = server.take(&mut answers);
        match (answers.pop_front(), seen) {
            (Some(ChildAnswer::Described(description)), _) => {
                // It ends by itself, and then prints its buffered output.
                let _ = server.dismiss(); // its output at the end is not part of its description
                return Ok(description);
            }
            (Some(ChildAnswer::Failed(failure, _)), _) => return Err(failure.message),
            (_, ChildState::Gone) => {
                return Err(format!("{} instead of describing itself", server.post_mortem()));
            }
            (None, ChildState::Working) if took.is_ok() => {}
            _ => return Err("its process wrote invalid data instead of an answer".to_owned()),
        }
        if Instant::now() > until {
            let patience = format_duration(PATIENCE);
            return Err(format!("it did not describe itself within {patience}, and its process was killed"));
        }
    }
}

/// The beginning of the output.
fn read(mut from: UnixStream) -> String {
    let (mut kept, mut bytes) = (Vec::new(), [0; PRINTED_MAX]);
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let room = PRINTED_MAX - kept.len();
        kept.extend_from_slice(&bytes[..read.min(room)]);
    }
    let text = String::from_utf8_lossy(&kept);
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn as_printed(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("; it printed `{text}`") }
}

/// A library that only describes itself has no step that could log.
#[derive(Debug)]
struct Nowhere;

impl Journal for Nowhere {
    fn log(&self, _: Level, _: &str) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_about_the_system_is_told() {
        let helps = |why: &str| {
            let (path, why, printed) = ("plugins/libgeo.so".into(), why.to_owned(), String::new());
            Undescribed { path, why, printed }.help()
        };
        assert!(
            helps("it: failed to map segment from shared object").is_some_and(|help| help.contains("TMPDIR"))
        );
        let missing = "libdep.so: cannot open shared object file: No such file or directory";
        assert!(helps(missing).is_some_and(|help| help.contains("$ORIGIN") && help.contains("`plugins`")));
        assert_eq!(helps("it exports no function"), None);
    }
}
