//! `Level`: the severity of a log line.

use crate::abi;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    #[cfg(feature = "json")]
    pub(crate) fn to_abi(self) -> i32 {
        match self {
            Self::Error => abi::TIDEGATE_LOG_ERROR,
            Self::Warn => abi::TIDEGATE_LOG_WARN,
            Self::Info => abi::TIDEGATE_LOG_INFO,
            Self::Debug => abi::TIDEGATE_LOG_DEBUG,
            Self::Trace => abi::TIDEGATE_LOG_TRACE,
        }
    }

    /// Numbers out of range become the nearest level.
    pub(crate) fn from_abi(level: i32) -> Self {
        match level {
            ..=abi::TIDEGATE_LOG_ERROR => Self::Error,
            abi::TIDEGATE_LOG_WARN => Self::Warn,
            abi::TIDEGATE_LOG_INFO => Self::Info,
            abi::TIDEGATE_LOG_DEBUG => Self::Debug,
            _ => Self::Trace,
        }
    }
}
