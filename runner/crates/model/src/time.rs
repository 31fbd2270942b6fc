//! Time: the clock, schedules and cron expressions.

pub(crate) mod clock;
pub(crate) mod schedule;
