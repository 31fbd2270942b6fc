//! Delivery times: the attempts and times of deliveries as bytes.
//!
//! Each run of deliveries with equal times has these parts:
//!
//! | part | form |
//! | --- | --- |
//! | number of attempts times 8, and flags | varint |
//! | number of deliveries | varint |
//! | creation (flag 1), first attempt (flag 2), submission (flag 4), if their flag is set | zigzag varint each |
//!
//! A time is the milliseconds since the same time of the run before it. In the first run, it counts from the time of the
//! commit.

use super::bytes::{Bytes, Wrong, add_zigzag, put_varint, zigzag};
use crate::api::delivery::DeliveryTimes;
use tidegate_model::Timestamp;

/// The bits of the flags of a run.
const FLAG_BITS: u32 = 3;

/// Values of consecutive jobs: each with the number of jobs in a row that have it, at least one.
pub(crate) type Runs<T> = Vec<(T, u64)>;

/// Appends the runs. `time`: that of the commit.
pub(crate) fn put(record: &mut Vec<u8>, time: Timestamp, runs: &[(DeliveryTimes, u64)]) {
    let mut last = [time; FLAG_BITS as usize];
    for &(DeliveryTimes { attempts, created, first_attempt, submitted }, jobs) in runs {
        let times = [created, first_attempt, submitted];
        let flags = (0..).zip(times).map(|(bit, time)| u64::from(time.is_some()) << bit).sum::<u64>();
        put_varint(record, u64::from(attempts) << FLAG_BITS | flags);
        put_varint(record, jobs);
        for (last, time) in last.iter_mut().zip(times) {
            let Some(time) = time else { continue };
            put_varint(record, zigzag(last.0.cast_unsigned(), time.0.cast_unsigned()));
            *last = time;
        }
    }
}

/// The inverse of [`put`]: reads all bytes.
pub(crate) fn take(mut bytes: Bytes<'_>, time: Timestamp) -> Result<Runs<DeliveryTimes>, Wrong> {
    let (mut last, mut runs) = ([time; FLAG_BITS as usize], Vec::new());
    while !bytes.0.is_empty() {
        let head = bytes.varint()?;
        let attempts = u32::try_from(head >> FLAG_BITS).map_err(|_| "it has too many attempts")?;
        let jobs = bytes.varint()?;
        let mut times = [None; FLAG_BITS as usize];
        for (bit, (last, time)) in last.iter_mut().zip(&mut times).enumerate() {
            if head >> bit & 1 == 1 {
                *last = Timestamp(add_zigzag(last.0.cast_unsigned(), bytes.varint()?).cast_signed());
                *time = Some(*last);
            }
        }
        let [created, first_attempt, submitted] = times;
        runs.push((DeliveryTimes { attempts, created, first_attempt, submitted }, jobs));
    }
    Ok(runs)
}
