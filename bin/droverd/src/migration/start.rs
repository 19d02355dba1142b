//! Beginning to move a guest from here, once for each id that it is asked for with.

use std::sync::Arc;

use drover_api::{ErrorCode, EventKind, MigrateRequest, MigrationRole, MigrationView, Refusal};
use drover_hypervisor::RunState;
use drover_migrate::Migration;
use drover_migrate::source::Source;
use drover_types::{Convergence, HostName, MigrationId, VmName};
use uuid::Uuid;

use super::held::Held;
use super::orders::of_another;
use super::outgoing::{self, Options};
use super::own::{self, Local, OwnGuest};
use super::snapshot::Snapshot;
use super::{Known, Migrations, once_prepared};
use crate::clock::Moment;
use crate::config::Channels;
use crate::registry::{Purpose, Reservation};

impl Migrations {
    /// Begins to move a guest. Answers when the destination has agreed. Asked again with the same id it
    /// answers with what it began then, as it is now, for as long as that is in the history, or with the
    /// same refusal.
    ///
    /// # Errors
    /// It is refused, now or then; or the id cannot be used, or is that of another migration.
    pub async fn start(
        &self,
        vm: &VmName,
        request: MigrateRequest,
    ) -> Result<MigrationView, Refusal> {
        let Some(id) = request.id else {
            return self.begin(MigrationId(Uuid::now_v7()), vm, &request).await;
        };
        if id.0.is_nil() {
            let message = format!("id {id} cannot be that of a migration");
            return Err(Refusal::new(ErrorCode::BadRequest, message)
                .next("give each migration an id of its own, or leave it out"));
        }
        let to = &request.to;
        if let Some(begun) = self.begun(id, vm, to)? {
            return answer(begun).await;
        }
        let begin = async {
            // The same order may have been carried out since.
            match self.begun(id, vm, to)? {
                Some(begun) => answer(begun).await,
                None => self.begin(id, vm, &request).await,
            }
        };
        self.orders.once(id, (vm, to), begin).await
    }

    /// The migration that an order of this id began.
    fn begun(&self, id: MigrationId, vm: &VmName, to: &HostName) -> Result<Option<Known>, Refusal> {
        let Ok(known) = self.find(id) else {
            return Ok(None);
        };
        let view = known.snapshot().view;
        if view.role == MigrationRole::Source && view.vm == *vm && view.destination == *to {
            return Ok(Some(known));
        }
        Err(of_another(id, &view.vm, &view.destination))
    }

    async fn begin(
        &self,
        id: MigrationId,
        vm: &VmName,
        request: &MigrateRequest,
    ) -> Result<MigrationView, Refusal> {
        let client = self.context.peers.client(&request.to)?;
        let migration = Migration {
            id,
            vm: vm.clone(),
            source: self.context.config.host.clone(),
            destination: request.to.clone(),
        };
        let purpose = Purpose::Outgoing {
            migration: id,
            destination: request.to.clone(),
        };
        let origin = Moment::now();
        let mut snapshot = Snapshot::new(&migration, MigrationRole::Source);
        let reserved = self.context.registry.reserve(vm, purpose);
        let (held, options) = match reserved {
            Ok(reservation) => {
                self.own_to_leave(reservation, request, &mut snapshot)
                    .await?
            }
            Err(no_such) if no_such.code == ErrorCode::NoSuchVm => {
                let domain = self.domain_to_leave(&migration, request, no_such, &mut snapshot);
                domain.await?
            }
            Err(refusal) => return Err(refusal),
        };
        snapshot.view.other_agent = self.context.peers.addresses(&request.to);
        let handle = outgoing::start(
            Arc::clone(&self.context),
            self.journal.clone(),
            outgoing::Beginning {
                source: Source::new(migration, origin.elapsed()),
                snapshot,
                reservation: Some(held),
                options,
                client,
                origin,
                recovered: false,
            },
        );
        let known = Known::Outgoing(handle);
        self.add(id, known.clone());
        answer(known).await
    }

    /// The right to a guest of the agent's own that is to leave, and how it is moved.
    async fn own_to_leave(
        &self,
        reservation: Reservation,
        request: &MigrateRequest,
        snapshot: &mut Snapshot,
    ) -> Result<(Arc<dyn Held>, Options), Refusal> {
        let runs = match reservation.machine() {
            Some(machine) => machine
                .state()
                .await
                .is_ok_and(|state| state == RunState::Running),
            None => false,
        };
        if !runs {
            let vm = reservation.name();
            let message = format!("guest {vm} does not run, or its QEMU does not answer");
            return Err(Refusal::new(ErrorCode::VmNotRunning, message)
                .next(format!("`drover vm show {vm}` tells its state")));
        }
        let wished = reservation.convergence();
        if let Some(problem) = reservation.unreadable_wishes() {
            let what = format!("{problem}; what the guest was started with counts");
            snapshot.record(EventKind::Fallback { what });
        }
        let mut options = self.options(request, wished);
        let locals = match request.with_disks {
            true => self.disks_to_leave(&reservation, snapshot).await?,
            false => Vec::new(),
        };
        if !locals.is_empty() {
            for what in own::without(reservation.name(), request, &mut options)? {
                snapshot.record(EventKind::Fallback { what });
            }
            options.disks = u16::try_from(locals.len()).unwrap_or(u16::MAX);
        }
        let migration = snapshot.view.id;
        let held = OwnGuest::leaving(&self.context, migration, reservation, &locals);
        Ok((Arc::new(held), options))
    }

    /// Those of a guest that runs, and what is to be told of the others.
    async fn disks_to_leave(
        &self,
        reservation: &Reservation,
        snapshot: &mut Snapshot,
    ) -> Result<Vec<Local>, Refusal> {
        let Some(machine) = reservation.machine() else {
            return Ok(Vec::new());
        };
        let (locals, notes) = own::local(&self.context, reservation.name(), &*machine).await?;
        for what in notes {
            snapshot.record(EventKind::Fallback { what });
        }
        Ok(locals)
    }

    /// `wished` is the guest's definition's word.
    pub(super) fn options(&self, request: &MigrateRequest, wished: Convergence) -> Options {
        let config = &self.context.config.migration;
        let configured = match config.channels {
            Channels::Auto => None,
            Channels::Fixed(count) => Some(count),
        };
        Options {
            convergence: request.convergence.or(wished).or(config.convergence),
            channels: request.channels.or(configured),
            lanes_per_path: request
                .lanes_per_path
                .map_or(config.lanes_per_path, |lanes| (lanes, lanes)),
            reduction: request.reduction.unwrap_or(config.reduction),
            disks: 0,
        }
    }
}

/// What whoever asked for it is told: how it is, once the destination has agreed, or why that did not come
/// about.
async fn answer(known: Known) -> Result<MigrationView, Refusal> {
    let snapshot = match known {
        Known::Outgoing(handle) => once_prepared(handle.snapshot).await,
        Known::Incoming(_) | Known::Past(_) => known.snapshot(),
    };
    match snapshot.refusal {
        Some(refusal) => Err(refusal),
        None => Ok(snapshot.view),
    }
}
