//! Priority of threads: slow batches use what the others leave of the processors.
//!
//! A thread cannot raise its priority again without a privilege of the system. So a thread with a low priority keeps it
//! until it ends.

use std::fs;
use std::time::Duration;

/// Number of a thread in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadNumber(rustix::thread::Pid);

/// Lowest priority, as `nice` counts it.
const NICE_MAX: i32 = 19;

/// The number of this thread.
pub(crate) fn own_number() -> ThreadNumber {
    ThreadNumber(rustix::thread::gettid())
}

/// Gives a thread the lowest priority.
pub(crate) fn lower(thread: ThreadNumber) {
    // Linux takes the number of a thread here. Without the low priority, slow batches only take more of the processors.
    let _ = rustix::process::setpriority_process(Some(thread.0), NICE_MAX);
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
    fn a_thread_gets_the_lowest_priority() {
        let nice = std::thread::spawn(|| {
            lower(own_number());
            rustix::process::getpriority_process(Some(own_number().0))
        });
        assert_eq!(nice.join().unwrap(), Ok(NICE_MAX));
        assert_ne!(rustix::process::getpriority_process(Some(own_number().0)), Ok(NICE_MAX));
    }
}
