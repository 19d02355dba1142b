//! Migrations of guests from and to this host.

use std::sync::Arc;

use drover_api::{
    AbandonRequest, ErrorCode, IncomingOffer, IncomingRequest, IncomingStart, IncomingView,
    MigrateRequest, MigrationView, Refusal, RunRequest, VerdictView,
};
use drover_types::{MigrationId, VmName};

use crate::agent::Context;
use crate::api::Caller;
use crate::registry::Recovered;

/// Every migration that this agent knows of.
#[derive(Debug)]
pub struct Migrations {
    context: Arc<Context>,
}

fn not_yet<T>() -> Result<T, Refusal> {
    Err(Refusal::new(
        ErrorCode::NotYet,
        "this agent cannot migrate guests yet",
    ))
}

impl Migrations {
    /// None yet. `context` is what migrations work with.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Takes up what an earlier agent left: the journal, and guests that were part of a migration.
    /// Called once, before the API is open.
    pub async fn recover(&self, recovered: Vec<Recovered>) {
        for guest in recovered {
            tracing::warn!(vm = %guest.reservation.name(), role = ?guest.role, "left as it is");
        }
        tracing::debug!(host = %self.context.config.host, "no migrations");
    }

    /// Begins to move a guest.
    pub async fn start(
        &self,
        _vm: &VmName,
        _request: MigrateRequest,
    ) -> Result<MigrationView, Refusal> {
        not_yet()
    }

    /// Under way and recent, newest first.
    pub async fn list(&self) -> Vec<MigrationView> {
        Vec::new()
    }

    /// One migration.
    pub async fn get(&self, id: MigrationId) -> Result<MigrationView, Refusal> {
        Err(Refusal::new(
            ErrorCode::NoSuchMigration,
            format!("no migration {id}"),
        ))
    }

    /// Cancels one.
    pub async fn cancel(&self, id: MigrationId) -> Result<MigrationView, Refusal> {
        self.get(id).await
    }

    /// Prepares for a guest.
    pub async fn incoming(
        &self,
        _caller: Caller,
        _request: IncomingRequest,
    ) -> Result<IncomingOffer, Refusal> {
        not_yet()
    }

    /// The lanes are up.
    pub async fn incoming_start(
        &self,
        _caller: Caller,
        _id: MigrationId,
        _request: IncomingStart,
    ) -> Result<IncomingView, Refusal> {
        not_yet()
    }

    /// The guest is ours.
    pub async fn incoming_run(
        &self,
        _caller: Caller,
        _id: MigrationId,
        _request: RunRequest,
    ) -> Result<IncomingView, Refusal> {
        not_yet()
    }

    /// The guest is not coming.
    pub async fn incoming_abandon(
        &self,
        _caller: Caller,
        _id: MigrationId,
        _request: AbandonRequest,
    ) -> Result<IncomingView, Refusal> {
        not_yet()
    }

    /// How far an arriving guest is.
    pub async fn incoming_status(
        &self,
        _caller: Caller,
        _id: MigrationId,
    ) -> Result<IncomingView, Refusal> {
        not_yet()
    }

    /// Whose the guest is.
    pub async fn verdict(&self, _caller: Caller, _id: MigrationId) -> Result<VerdictView, Refusal> {
        not_yet()
    }

    /// Cancels what can be cancelled, finishes what is in hand-off; new ones are refused from now
    /// on. Bounded by the caller.
    pub async fn shutdown(&self) {}
}
