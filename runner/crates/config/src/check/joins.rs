//! Joins by key: a job without a partner needs a place to go.

use super::resolve::{Wired, Wiring};
use crate::diagnostic::Diagnostic;

pub(crate) fn check(wiring: &Wiring<'_>) -> Vec<Diagnostic> {
    wiring.steps.iter().filter_map(without_errors).collect()
}

/// The step would stop at the first job without a partner.
fn without_errors(wired: &Wired<'_>) -> Option<Diagnostic> {
    let join = wired.step.joins.as_ref()?;
    let all_go_on = join.sides.iter().all(|(_, side)| side.left);
    if join.within.is_none() || wired.errors.is_some() || wired.drops_errors || all_go_on {
        return None;
    }
    let message = format!("the join `{}` has no error queue for jobs without a partner", join.reader);
    let help = "name one, `errors = \"NAME\"`, or let such jobs go on alone: `left = \"BINDING\"`";
    Some(Diagnostic::error_at(&join.place, message).help(help))
}
