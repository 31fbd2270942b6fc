//! Priority of threads: slow batches and the reading of a reload use what the others leave of the processors.
//!
//! A thread cannot raise its priority again without a privilege of the system. So a thread with a low priority keeps it
//! until it ends.

use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

/// Number of a thread in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(rustix::thread::Pid);

/// Lowest priority, as `nice` counts it.
const NICE_MAX: i32 = 19;
/// Priority of the reading of saved files. It is not the lowest one, so that a reload ends on a busy machine, too.
const NICE_BESIDE: i32 = 10;

/// The number of this thread.
pub(crate) fn own_number() -> ThreadNumber {
    ThreadNumber(rustix::thread::gettid())
}

/// Gives a thread the lowest priority.
pub(crate) fn lower(thread: ThreadNumber) {
    // Linux takes the number of a thread here. Without the low priority, slow batches only take more of the processors.
    let _ = rustix::process::setpriority_process(Some(thread.0), NICE_MAX);
}

/// Does this on a thread that yields to jobs, and waits for it. Threads that it starts yield, too.
///
/// # Errors
/// No thread can be started, and nothing is done.
pub(crate) fn beside_jobs<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("reading".into()).spawn_scoped(scope, || {
            yield_to_jobs();
            work()
        })?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn yield_to_jobs() {
    let own = Some(own_number().0);
    let nice = rustix::process::getpriority_process(own).unwrap_or_default().max(NICE_BESIDE);
    // Without the low priority, it only takes more of the processors.
    let _ = rustix::process::setpriority_process(own, nice);
}

/// Time for which this thread has been ready to run, and waited for a processor. 0: it is unknown.
pub(crate) fn own_wait() -> Duration {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|counts| wait_of(&counts))
        .unwrap_or_default()
}

/// The second number of `schedstat`, in nanoseconds.
fn wait_of(counts: &str) -> Option<Duration> {
    counts.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
impl ThreadNumber {
    pub(crate) fn of_test(number: u64) -> Self {
        Self(rustix::thread::Pid::from_raw(i32::try_from(number).unwrap()).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_a_thread_waits_is_the_second_number() {
        assert_eq!(wait_of("8361022 1500 14\n"), Some(Duration::from_nanos(1500)));
        assert_eq!(wait_of("8361022"), None);
        assert_eq!(wait_of("1 no 2"), None);
    }

    #[test]
    fn work_beside_jobs_yields_to_them_and_its_panic_is_that_of_the_caller() {
        let priority = || rustix::process::getpriority_process(Some(own_number().0));
        let before = priority();
        assert_eq!(beside_jobs(priority).unwrap(), Ok(before.unwrap().max(NICE_BESIDE)));
        assert_eq!(priority(), before);
        let panic = std::panic::catch_unwind(|| beside_jobs(|| panic!("at work"))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"at work"));
    }

    #[test]
    fn a_thread_gets_the_lowest_priority() {
        let nice = std::thread::spawn(|| {
            lower(own_number());
            rustix::process::getpriority_process(Some(own_number().0))
        });
        assert_eq!(nice.join().unwrap(), Ok(NICE_MAX));
        assert_ne!(rustix::process::getpriority_process(Some(own_number().0)), Ok(NICE_MAX));
    }
}
