//! Aspects: the groups of settings of a part that take effect in the same way.

use serde::{Deserialize, Serialize};

/// Declares an aspect with the words for people.
macro_rules! aspects {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $aspect:ident = $words:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$doc])* $aspect,)+
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$aspect),+];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$aspect => $words,)+
                }
            }
        }
    };
}

aspects! {
    /// The aspects of a step.
    StepAspect {
        /// The inputs, their names in the delivery hash, the input mode, and the provenance that jobs receive.
        Inputs = "inputs",
        /// The fields by which a join finds the jobs that belong together.
        JoinKey = "on",
        /// The time and the number of jobs without a partner, and what becomes of them.
        JoinLimits = "join limits",
        /// The first job of an input without progress.
        BeginAt = "begin_at",
        /// Scripts with their imports, plugins with their hashes, built-ins with their options, and the filter.
        /// Requests of HTTP sinks are part of the attempt, too.
        Program = "program",
        Config = "config",
        Timeout = "timeout",
        Limits = "limits",
        Isolate = "isolate",
        /// The bindings and their targets.
        Outputs = "outputs",
        /// The error queue.
        Errors = "errors",
        /// The queue of the events.
        Events = "events",
        Delivery = "delivery",
        /// How long outcomes are recorded, and whether repeated deliveries are dropped: follows from the
        /// targets.
        Dedupe = "dedupe",
        CrashLimit = "crash_limit",
        /// The effective retry policy.
        Retry = "retry",
        /// The order of waiting jobs: in order of the inputs or queued, strategy, lanes, and the fields that jobs
        /// are sorted by.
        Queuer = "queuer",
        /// The numbers of the queuer: bounds, rates and times.
        QueuerLimits = "queuer limits",
        /// The choice of a gate. The gate itself is a part of its own.
        Gate = "gate",
        Monitor = "monitor",
    }
}

aspects! {
    /// The aspects of a queue.
    QueueAspect {
        Retention = "retention",
        /// The provenance that its jobs receive.
        Meta = "meta",
        Dedupe = "dedupe",
        /// Whether it is an error queue.
        Errors = "errors",
        /// The HTTP source or the schedule that fills it.
        Source = "source",
    }
}

aspects! {
    /// The aspects of a pulled source.
    SourceAspect {
        Path = "path",
        /// The division of the content into jobs.
        Format = "format",
        Follow = "follow",
        /// The requests to its service.
        Request = "request",
        /// The provenance that its jobs receive.
        Meta = "meta",
    }
}

aspects! {
    /// The aspects of a sink.
    SinkAspect {
        /// The type, and the file.
        Target = "target",
        Format = "format",
        OnMismatch = "on_mismatch",
        /// The HTTP request.
        Request = "request",
    }
}

aspects! {
    /// The aspects of a gate.
    GateAspect {
        Program = "program",
        Config = "config",
        Every = "every",
        Timeout = "timeout",
    }
}

aspects! {
    /// The aspects of the runner's settings.
    RunnerAspect {
        Data = "data",
        Listen = "listen",
        Hosts = "hosts",
        Workers = "workers",
        ShutdownTimeout = "shutdown_timeout",
        /// The folders and the pinned hashes.
        Plugins = "plugins",
        Log = "log",
        Reload = "reload",
    }
}
