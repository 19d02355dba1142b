//! Guests that arrive, as the other host's agent asks for them: each call finds the task, tells it
//! what was asked, and waits for what comes of it.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use drover_api::{
    AbandonRequest, ErrorCode, EventKind, IncomingNetworks, IncomingOffer, IncomingPaths,
    IncomingPhase, IncomingReopen, IncomingRequest, IncomingStart, IncomingView, MigrationPhase,
    MigrationRole, Refusal,
};
use drover_migrate::destination::Destination;
use drover_migrate::limits::PATHS_KNOWN;
use drover_migrate::{HandOffAnswer, Migration, Resolution};
use drover_types::{Interface, MigrationId, Path, VmName};
use tokio::sync::oneshot;

use super::amend::Change;
use super::incoming::{self, Asked, Wanted, incoming_view};
use super::offered::Offered;
use super::security::{self, Own};
use super::snapshot::Snapshot;
use super::{Known, Migrations, common_protocol, ended, once_prepared, reduction};
use crate::api::{Accepted, Caller};
use crate::clock::Moment;
use crate::registry::Purpose;
use crate::{facts, libvirt, limits};

impl Migrations {
    /// Prepares for a guest.
    pub async fn incoming(
        &self,
        _caller: Caller, // the route has compared it with the request's source
        mut request: IncomingRequest,
    ) -> Result<IncomingOffer, Refusal> {
        let config = &self.context.config;
        self.context.cordon.check()?;
        self.context.libvirt.looked_at().await;
        let guest = libvirt::Own::from(&request.definition);
        let vacant = || {
            self.context
                .libvirt
                .vacancy_for(&config.host, &guest)
                .surely()
        };
        vacant()?;
        let protocol = common_protocol(&config.host, &request.source, request.protocol)?;
        let client = self.context.peers.client(&request.source)?;
        let migration = Migration {
            id: request.id,
            vm: request.definition.name.clone(),
            source: request.source.clone(),
            destination: config.host.clone(),
        };
        if self.known().contains_key(&(request.id, false)) {
            let message = format!("migration {} is known here already", request.id);
            return Err(Refusal::new(ErrorCode::MigrationUnderWay, message));
        }
        let purpose = Purpose::Incoming {
            migration: migration.id,
            source: request.source.clone(),
        };
        let reservation = self.context.registry.reserve(&migration.vm, purpose)?;
        let held = self.guest_to_arrive(&migration, &request, reservation);
        let held = held.await?;
        let interfaces = self.interfaces().await?;
        let cpus = facts::usable_cpus().map_err(|error| self.unreadable(&error))?;
        let Offered {
            interfaces,
            nics,
            left_out,
        } = Offered::of(config, interfaces).await;
        let origin = Moment::now();
        // Both ends wait as long as the one that waits less.
        let own_limit = config.migration.outage_limit.as_secs();
        request.outage_limit_s = request.outage_limit_s.min(own_limit);
        let outage_limit = Duration::from_secs(request.outage_limit_s);
        let destination = Destination::new(migration.clone(), origin.elapsed());
        let mut snapshot = Snapshot::new(&migration, MigrationRole::Destination);
        snapshot.view.other_agent = self.context.peers.addresses(&request.source);
        let (configured, theirs) = (config.migration.protection, request.lanes.encryption);
        let is_domain = request.domain.is_some();
        let ours = security::protection(configured, is_domain);
        let note = match is_domain {
            true => security::note_of_domain(configured.encryption),
            false => security::note((&config.host, ours.encryption), (&request.source, theirs)),
        };
        if let Some(what) = note {
            snapshot.record(EventKind::Fallback { what });
        }
        let beginning = incoming::Beginning {
            destination: destination.with_outage_limit(outage_limit),
            snapshot,
            reservation: Some(held),
            client,
            origin,
            asked: Some(Asked {
                vm: migration.vm.clone(),
                wanted: Wanted {
                    migration: request.id,
                    session: request.session,
                    lanes: request.lanes.clone(),
                    reduction: reduction::decide(
                        request.reduction.as_ref(),
                        config.migration.reduction_memory,
                        request.session,
                        self.stored(&migration.vm, is_domain),
                        is_domain,
                    ),
                    outage_limit_s: request.outage_limit_s,
                    keeps: request
                        .keeps
                        .map(|keeps| keeps.min(request.definition.memory)),
                    may_be_kept: request.definition.checkpoint,
                    is_domain,
                },
                own: Own::new(ours)?,
                nics,
            }),
            request: Some(request),
        };
        // It may have been said since; from here on the migration is seen by who looks for it.
        self.context.cordon.check()?;
        vacant()?;
        let (handle, offer) = incoming::start(
            Arc::clone(&self.context),
            self.journal.clone(),
            self.lanes.get().cloned(),
            beginning,
        )?;
        self.add(migration.id, Known::Incoming(handle.clone()));
        if self.is_given_up(migration.id) {
            let cause = "it was cancelled before it was asked for".to_owned();
            // One that has ended already needs not be told.
            let _ = handle.inbox.send(incoming::Message::Abandon(cause)).await;
        }
        let snapshot = once_prepared(handle.snapshot).await;
        if let Some(refusal) = snapshot.refusal {
            return Err(refusal);
        }
        let offer = offer.ok_or_else(|| self.unknown(migration.id))?;
        Ok(IncomingOffer {
            protocol,
            interfaces,
            cpus,
            qemu_version: snapshot.qemu_version.unwrap_or_default(),
            notes: [snapshot.view.notes, left_out, offer.notes].concat(),
            ..offer
        })
    }

    /// Which pages are stored here for this guest: none for a domain, whatever guest of ours had its name.
    fn stored(&self, vm: &VmName, is_domain: bool) -> reduction::Stored {
        if is_domain {
            reduction::Stored::Nothing
        } else if self.context.checkpoints.has(vm) {
            reduction::Stored::Checkpoint
        } else if self.context.shared_pages.is_on() {
            reduction::Stored::Shared
        } else {
            reduction::Stored::Nothing
        }
    }

    fn find_incoming(&self, id: MigrationId) -> Result<Known, Refusal> {
        self.known()
            .get(&(id, false))
            .cloned()
            .ok_or_else(|| self.unknown(id))
    }

    /// Tells an arriving guest's task something and waits for what comes of it.
    async fn tell_incoming(
        &self,
        id: MigrationId,
        message: incoming::Message,
        until: impl FnMut(&Snapshot) -> bool,
    ) -> Result<IncomingView, Refusal> {
        let mut handle = match self.find_incoming(id)? {
            Known::Incoming(handle) => handle,
            known => return Ok(incoming_view(&known.snapshot())),
        };
        // A task that has ended has left its last word in the snapshot.
        let _ = handle.inbox.send(message).await;
        let waited = handle.snapshot.wait_for(until);
        let _ = tokio::time::timeout(limits::RUN_ANSWER, waited).await;
        let snapshot = handle.snapshot.borrow().clone();
        Ok(incoming_view(&snapshot))
    }

    /// The lanes are up.
    pub async fn incoming_start(
        &self,
        caller: Caller,
        id: MigrationId,
        request: IncomingStart,
    ) -> Result<IncomingView, Refusal> {
        self.authorize(&caller, id, false)?;
        bounded(&request.paths)?;
        let listens =
            |snapshot: &Snapshot| !matches!(incoming_view(snapshot).phase, IncomingPhase::Prepared);
        let message = incoming::Message::Listen(request);
        let view = self.tell_incoming(id, message, listens).await?;
        match view.phase {
            IncomingPhase::Receiving | IncomingPhase::Arrived => {
                self.make_room(id).await;
                Ok(view)
            }
            _ => {
                let cause = view
                    .cause
                    .unwrap_or_else(|| "QEMU does not listen yet".to_owned());
                Err(Refusal::new(ErrorCode::QemuFailed, cause))
            }
        }
    }

    /// The session's paths are these by now.
    pub async fn incoming_paths(
        &self,
        caller: Caller,
        id: MigrationId,
        request: IncomingPaths,
    ) -> Result<IncomingNetworks, Refusal> {
        self.authorize(&caller, id, false)?;
        bounded(&request.paths)?;
        let Known::Incoming(handle) = self.find_incoming(id)? else {
            let message = format!("migration {id} has ended here");
            return Err(Refusal::new(ErrorCode::MigrationEnded, message));
        };
        let interfaces = self.interfaces().await?;
        let Offered {
            interfaces, nics, ..
        } = Offered::of(&self.context.config, interfaces).await;
        let paths = request.paths;
        let (heard, listens) = oneshot::channel();
        let message = incoming::Message::Networks { paths, nics, heard };
        // A task that has ended needs no paths.
        let _ = handle.inbox.send(message).await;
        // What is offered can be reached once the source hears of it.
        let _ = tokio::time::timeout(limits::RUN_ANSWER, listens).await;
        self.make_room(id).await;
        Ok(IncomingNetworks { interfaces })
    }

    /// What comes next on the paths of this one finds the limits of here divided among all, and told.
    async fn make_room(&self, id: MigrationId) {
        if !self.context.sharing.heard().await {
            tracing::warn!(%id, "its source begins before it has heard its limits");
        }
    }

    /// The session broke while pages were still to follow a guest here: makes ready for another one.
    pub async fn incoming_reopen(
        &self,
        caller: Caller,
        id: MigrationId,
        request: IncomingReopen,
    ) -> Result<IncomingOffer, Refusal> {
        self.authorize(&caller, id, false)?;
        let Known::Incoming(handle) = self.find_incoming(id)? else {
            return Err(ended(id));
        };
        let config = &self.context.config;
        let interfaces = self.interfaces().await?;
        let cpus = facts::usable_cpus().map_err(|error| self.unreadable(&error))?;
        let Offered {
            interfaces, nics, ..
        } = Offered::of(config, interfaces).await;
        let own_limit = config.migration.outage_limit.as_secs();
        let asked = Asked {
            vm: handle.snapshot.borrow().view.vm.clone(),
            wanted: Wanted {
                migration: id,
                session: request.session,
                lanes: request.lanes,
                // What is still to follow is urgent: a page at a time.
                keeps: None,
                may_be_kept: false,
                // Of these none goes on before its pages do.
                is_domain: false,
                reduction: None,
                outage_limit_s: request.outage_limit_s.min(own_limit),
            },
            own: Own::new(config.migration.protection)?,
            nics,
        };
        let (answer, answered) = oneshot::channel();
        let message = incoming::Message::Reopen(Box::new(asked), answer);
        let _ = handle.inbox.send(message).await;
        let offer = answered.await.unwrap_or_else(|_| Err(over(&handle)))?;
        Ok(IncomingOffer {
            protocol: facts::protocol().max,
            interfaces,
            cpus,
            qemu_version: handle
                .snapshot
                .borrow()
                .qemu_version
                .clone()
                .unwrap_or_default(),
            ..offer
        })
    }

    /// The lanes of that other session are up.
    pub async fn incoming_recover(
        &self,
        caller: Caller,
        id: MigrationId,
        request: IncomingPaths,
    ) -> Result<IncomingView, Refusal> {
        self.authorize(&caller, id, false)?;
        bounded(&request.paths)?;
        let Known::Incoming(handle) = self.find_incoming(id)? else {
            return Err(ended(id));
        };
        let (answer, answered) = oneshot::channel();
        let message = incoming::Message::Recover(request.paths, answer);
        let _ = handle.inbox.send(message).await;
        answered.await.unwrap_or_else(|_| Err(over(&handle)))?;
        self.make_room(id).await;
        let view = incoming_view(&handle.snapshot.borrow());
        Ok(view)
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> Refusal {
        let host = &self.context.config.host;
        let message = format!("cannot read the facts of {host}: {error}");
        Refusal::new(ErrorCode::Internal, message)
    }

    async fn interfaces(&self) -> Result<Vec<Interface>, Refusal> {
        let interfaces = facts::interfaces().await;
        interfaces.map_err(|error| self.unreadable(&error))
    }

    /// The guest is ours.
    pub async fn incoming_run(
        &self,
        caller: Caller,
        id: MigrationId,
        accepted: Accepted,
    ) -> Result<IncomingView, Refusal> {
        self.authorize(&caller, id, false)?;
        let answered = |snapshot: &Snapshot| {
            matches!(
                snapshot.answer,
                Some(
                    HandOffAnswer::Running
                        | HandOffAnswer::Filling
                        | HandOffAnswer::CutOff
                        | HandOffAnswer::Gone { .. }
                )
            ) || snapshot.view.phase.has_ended()
        };
        let message = incoming::Message::Run(accepted);
        self.tell_incoming(id, message, answered).await
    }

    /// The guest is not coming.
    pub async fn incoming_abandon(
        &self,
        caller: Caller,
        id: MigrationId,
        request: AbandonRequest,
    ) -> Result<IncomingView, Refusal> {
        self.give_up_unheard(id);
        self.authorize(&caller, id, false)?;
        let message = incoming::Message::Abandon(request.cause.clone());
        let over = |snapshot: &Snapshot| snapshot.view.phase.has_ended();
        let view = self.tell_incoming(id, message, over).await?;
        let snapshot = self.find_incoming(id)?.snapshot();
        if snapshot.resolution == Some(Resolution::RunHere) {
            return Ok(view);
        }
        if snapshot.view.phase.has_ended() {
            // What the source says of a guest that was given up belongs to its history.
            self.amend((id, false), |snapshot| add_word(snapshot, &request.cause))
                .await;
            // By this word what is left of a domain may go; what takes longer is done by and by.
            let _ = tokio::time::timeout(limits::RUN_ANSWER, self.pay((id, false))).await;
            return Ok(view);
        }
        let host = &self.context.config.host;
        let message = format!("{host} is still ending the QEMU of guest {}", view.vm);
        Err(Refusal::new(ErrorCode::Timeout, message))
    }

    /// A word that a guest is not coming can overtake the one that it comes: whichever of the two is taken
    /// last finds the other.
    fn give_up_unheard(&self, id: MigrationId) {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.known().contains_key(&(id, false)) && !given_up.contains(&id) {
            given_up.push_back(id);
            let excess = given_up.len().saturating_sub(limits::ORDERS);
            given_up.drain(..excess);
        }
    }

    fn is_given_up(&self, id: MigrationId) -> bool {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.contains(&id)
    }

    /// How far an arriving guest is.
    pub async fn incoming_status(
        &self,
        caller: Caller,
        id: MigrationId,
    ) -> Result<IncomingView, Refusal> {
        self.authorize(&caller, id, false)?;
        self.find_incoming(id)
            .map(|known| incoming_view(&known.snapshot()))
    }
}

/// Why a task answers no more. That its migration has ended is said of one only that says so itself: by that the
/// source ends its QEMU.
fn over(handle: &incoming::Handle) -> Refusal {
    let view = handle.snapshot.borrow().view.clone();
    if view.phase.has_ended() {
        return ended(view.id);
    }
    let message = format!("migration {} is not looked after here", view.id);
    Refusal::new(ErrorCode::Internal, message).next("restart this host's agent")
}

/// A session keeps no more paths than it may know.
fn bounded(paths: &[Path]) -> Result<(), Refusal> {
    let count = paths.len();
    if count <= PATHS_KNOWN {
        return Ok(());
    }
    let message = format!("{count} paths, {PATHS_KNOWN} are possible");
    Err(Refusal::new(ErrorCode::BadRequest, message))
}

fn add_word(snapshot: &mut Snapshot, why: &str) -> Change {
    let Some(own) = &snapshot.view.cause else {
        return Change::Nothing;
    };
    let both = incoming::with_the_sources_word(own, why);
    if both == *own || snapshot.view.phase != MigrationPhase::Abandoned {
        return Change::Nothing;
    }
    snapshot.view.cause = Some(both);
    Change::Shown
}
