//! Requests: let operators and external systems retry, cancel, move and complete jobs.

pub(crate) mod apply;
pub(crate) mod cancel;
pub(crate) mod complete;
pub(crate) mod effect;
pub(crate) mod late;
pub(crate) mod removed;
pub(crate) mod request;
