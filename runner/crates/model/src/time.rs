//! Time: the clock, due times, schedules and cron expressions.

pub(crate) mod clock;
pub(crate) mod due;
pub(crate) mod schedule;
