//! Status of reloads: reports the generation of a runner, and whether the files differ from it.

use serde::{Deserialize, Serialize};

use super::rfc3339;
use crate::reload::waiting_for_restart;
use tidegate_engine::{Handle, LingeringStep, RefusedReload, RolledBack, RolledBackBefore};
use tidegate_store::Trigger;

/// The generation that a runner carries out, and the files.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReloadStatus {
    pub(crate) generation: u64,
    /// Whether the texts of the files differ from those of the generation.
    pub(crate) files_differ: bool,
    /// The last change that did not take effect, until the files change again.
    pub(crate) refused: Option<RefusedFiles>,
    /// The rollback to an earlier generation, until the files change again.
    pub(crate) rolled_back: Option<RollbackStatus>,
    /// The rollback of the same files before the start, until they change.
    pub(crate) rolled_back_before: Option<EarlierRollback>,
    /// Steps that finish jobs of an earlier generation before they follow.
    pub(crate) lingering: Vec<LingeringStatus>,
    /// Changed settings of the generation that take effect when the runner restarts.
    #[serde(default)]
    pub(crate) restart: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LingeringStatus {
    pub(crate) step: String,
    /// RFC 3339.
    pub(crate) since: String,
    pub(crate) why: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RefusedFiles {
    /// RFC 3339.
    pub(crate) since: String,
    pub(crate) trigger: Trigger,
    /// The first mistake.
    pub(crate) why: String,
    /// Its place in a file, for the HTTP port. `why` begins with it.
    #[serde(skip)]
    pub(crate) place: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RollbackStatus {
    /// The generation that was rolled back.
    pub(crate) from: u64,
    /// The earlier generation, which is in force again.
    pub(crate) to: u64,
    /// RFC 3339.
    pub(crate) since: String,
    pub(crate) trigger: Trigger,
    pub(crate) why: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EarlierRollback {
    /// The generation that was rolled back.
    pub(crate) generation: u64,
    pub(crate) why: String,
}

impl ReloadStatus {
    pub(crate) fn of(run: &Handle) -> Self {
        let refused = run.refused_reload().map(|RefusedReload { since, trigger, why, place, .. }| {
            RefusedFiles { since: rfc3339(since), trigger, why, place }
        });
        let rolled_back = run.rolled_back().map(|RolledBack { from, to, since, trigger, why }| {
            RollbackStatus { from, to, since: rfc3339(since), trigger, why }
        });
        let rolled_back_before = run
            .rolled_back_before()
            .map(|RolledBackBefore { generation, why }| EarlierRollback { generation, why });
        let current = run.generation();
        Self {
            generation: current.number,
            files_differ: run.files_differ(),
            refused,
            rolled_back,
            rolled_back_before,
            lingering: run.lingering().into_iter().map(LingeringStatus::from).collect(),
            restart: waiting_for_restart(run, &current.digest),
        }
    }
}

impl From<LingeringStep> for LingeringStatus {
    fn from(LingeringStep { step, since, why }: LingeringStep) -> Self {
        Self { step: step.to_string(), since: rfc3339(since), why }
    }
}
