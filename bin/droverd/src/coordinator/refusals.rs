//! What is told of runs that cannot be had.

use drover_api::{ClientError, ErrorCode, Refusal};
use drover_store::{Outcome, StoreError};
use drover_types::{HostName, RunId, with_sources};

/// Whether a write may have been done all the same.
pub fn is_unknown(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::NoQuorum {
            outcome: Outcome::Unknown,
            ..
        } | StoreError::Unavailable {
            outcome: Outcome::Unknown,
            ..
        }
    )
}

pub fn no_such_run(id: RunId) -> Refusal {
    let message = format!("no run {id} is remembered");
    Refusal::new(ErrorCode::NoSuchRun, message).next("`drover run` lists them")
}

pub fn has_ended(id: RunId) -> Refusal {
    Refusal::new(ErrorCode::RunEnded, format!("run {id} has ended")).next("`drover run` tells how")
}

pub fn nobody_leads(id: RunId) -> Refusal {
    let message =
        format!("run {id} is carried out by nobody at the moment: its coordinator let go of it");
    Refusal::new(ErrorCode::PeerUnreachable, message).next(
        "another one takes it over within 15 s: `drover run` shows which; then repeat the command",
    )
}

pub fn not_passed_on(coordinator: &HostName, id: RunId, error: &ClientError) -> Refusal {
    let why = with_sources(error);
    let message = format!(
        "run {id} is carried out by {coordinator}, which cannot be told of the cancel: {why}"
    );
    Refusal::new(ErrorCode::PeerUnreachable, message).next(
        "if that host is gone another one takes the run over within 15 s: `drover run` shows which; then repeat the \
         command",
    )
}
