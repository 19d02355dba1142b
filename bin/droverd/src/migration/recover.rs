//! Taking up what an earlier agent left: its journal, and the guests that were part of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context as _;
use drover_api::{EventKind, EventView, MigrationRole, MigrationView};
use drover_carrier::Side;
use drover_migrate::destination::Destination;
use drover_migrate::source::Source;
use drover_migrate::{
    DestinationRecord, DestinationStep, JournalVersion, Migration, SourceRecord, SourceStep,
    Verdict,
};
use drover_types::HostName;

use super::held::Held;
use super::journal::{AnyRecord, Entry};
use super::outgoing::Options;
use super::own::OwnGuest;
use super::relays::Relays;
use super::snapshot::Snapshot;
use super::{Known, Migrations, incoming, outgoing};
use crate::clock::Moment;
use crate::disks;
use crate::interrupts::Holder;
use crate::libvirt::{self, DomainRecord};
use crate::registry::{Purpose, Recovered, Reservation, Role};
use crate::storage;

impl Migrations {
    /// Takes up what an earlier agent left: the journal, and guests that were part of a migration.
    /// Called once, before the API is open.
    ///
    /// # Errors
    /// The journal cannot be read: without it nobody knows which guests may be started here.
    pub async fn recover(&self, mut recovered: Vec<Recovered>) -> anyhow::Result<()> {
        let entries = self
            .journal
            .load()
            .context("key `state`: the journal cannot be read")?;
        self.end_stale_relays(&entries, &recovered);
        for entry in entries {
            let ended = match &entry.record {
                AnyRecord::Source(record) => matches!(record.step, SourceStep::Finished { .. }),
                AnyRecord::Destination(record) => {
                    !matches!(record.step, DestinationStep::Incoming)
                        && entry.view.phase.has_ended()
                }
            };
            if ended {
                self.remember(entry);
            } else {
                let guest = take(&mut recovered, &entry);
                let shown = Some((entry.view, entry.events));
                self.take_up(entry.record, shown, guest, entry.domain)?;
            }
        }
        for guest in recovered {
            // The journal does not know it: what its record says is enough to decide.
            if let Some(record) = record_of(&guest, &self.context.config.host) {
                tracing::warn!(vm = %guest.reservation.name(), role = ?guest.role, "not in the journal");
                self.take_up(record, None, Some(guest.reservation), None)?;
            }
        }
        self.give_interrupts_back();
        self.forget_arrivals();
        Ok(())
    }

    /// Those that were moved for migrations that do not go on.
    fn give_interrupts_back(&self) {
        let under_way = self.under_way().into_iter().map(|view| Holder {
            migration: view.id,
            leaves: view.role == MigrationRole::Source,
        });
        let under_way = under_way.collect();
        tokio::task::block_in_place(|| self.context.interrupts.take_up(&under_way));
    }

    /// Of domains whose migration does not go on nothing is to be known.
    fn forget_arrivals(&self) {
        let under_way = self.under_way().into_iter();
        let arrive = under_way.filter(|view| view.role == MigrationRole::Destination);
        let kept: BTreeSet<_> = arrive.map(|view| view.id).collect();
        let known = self.known();
        let owing = known.iter().filter(|(_, known)| known.snapshot().owes());
        let owing = owing.map(|((id, _), _)| *id).chain(kept.iter().copied());
        let mut with_disks: BTreeSet<_> = owing.collect();
        drop(known);
        with_disks.extend(self.with_files().into_iter().map(|(id, _)| id));
        tokio::task::block_in_place(|| {
            libvirt::forget_arrivals(&self.context, &kept);
            let state = &self.context.config.state;
            with_disks.extend(storage::with_files(state));
            disks::forget_all_but(state, &with_disks);
        });
    }

    /// Ends the relays that no migration goes on with.
    fn end_stale_relays(&self, entries: &[Entry], recovered: &[Recovered]) {
        let of_entry = |entry: &Entry| match &entry.record {
            AnyRecord::Source(record) => matches!(
                record.step,
                SourceStep::Preparing
                    | SourceStep::Transferring
                    | SourceStep::PostcopyBegun
                    | SourceStep::PostcopyHandedOff
                    | SourceStep::Serving
            )
            .then_some((record.migration.id, Side::Source)),
            AnyRecord::Destination(record) => matches!(
                record.step,
                DestinationStep::Incoming | DestinationStep::Filling { .. }
            )
            .then_some((record.migration.id, Side::Destination)),
        };
        let of_guest = |guest: &Recovered| match guest.role {
            Role::Outgoing { migration, .. } => Some((migration, Side::Source)),
            Role::Incoming { migration, .. } => Some((migration, Side::Destination)),
            Role::Running | Role::HandedOff { .. } => None,
        };
        let entries = entries.iter().filter_map(of_entry);
        let kept: Vec<_> = entries
            .chain(recovered.iter().filter_map(of_guest))
            .collect();
        let relays = Relays::of(&self.context.config.runtime);
        tokio::task::block_in_place(|| relays.end_all_but(&kept));
    }

    fn remember(&self, entry: Entry) {
        let verdict = match &entry.record {
            AnyRecord::Source(record) => record.verdict(),
            AnyRecord::Destination(_) => Verdict::Undecided,
        };
        let mut snapshot = Snapshot::of(entry.view, verdict, entry.events);
        snapshot.refusal = entry.refusal;
        snapshot.domain = entry.domain;
        snapshot.resolution = match &entry.record {
            AnyRecord::Source(record) => record.resolution(),
            AnyRecord::Destination(record) => record.resolution(),
        };
        self.add(snapshot.view.id, Known::Past(Box::new(snapshot)));
    }

    fn take_up(
        &self,
        record: AnyRecord,
        shown: Option<(MigrationView, Vec<EventView>)>,
        reservation: Option<Reservation>,
        domain: Option<DomainRecord>,
    ) -> anyhow::Result<()> {
        let (migration, role) = match &record {
            AnyRecord::Source(record) => (record.migration.clone(), MigrationRole::Source),
            AnyRecord::Destination(record) => {
                (record.migration.clone(), MigrationRole::Destination)
            }
        };
        let held = match domain {
            None => {
                let reserved = reservation.or_else(|| self.reserve_again(&migration, role));
                let own = |reserved| {
                    let held = OwnGuest::taken_up(&self.context, &migration, reserved);
                    held.map(|own| Arc::new(own) as Arc<dyn Held>)
                };
                let held = reserved.map(own).transpose();
                held.with_context(|| {
                    format!("what is known of disks of migration {}", migration.id)
                })?
            }
            Some(domain) => {
                let leaves = role == MigrationRole::Source;
                // Where it comes to no guest of the agent's own takes its name meanwhile.
                let name = (!leaves).then(|| self.reserve_again(&migration, role));
                let name = name.flatten();
                let held = libvirt::taken_up(&self.context, &migration, domain, leaves, name);
                let held = held.with_context(|| {
                    format!(
                        "migration {}: restore its record below `state`",
                        migration.id
                    )
                })?;
                Some(Arc::new(held) as Arc<dyn Held>)
            }
        };
        let mut snapshot = match shown {
            Some((view, events)) => Snapshot::of(view, Verdict::Undecided, events),
            None => Snapshot::new(&migration, role),
        };
        snapshot.record(EventKind::TakenUp);
        snapshot.prepared = true;
        let peer = match role {
            MigrationRole::Source => &migration.destination,
            MigrationRole::Destination => &migration.source,
        };
        if snapshot.view.other_agent.is_empty() {
            snapshot.view.other_agent = self.context.peers.addresses(peer);
        }
        let last = snapshot.view.other_agent.clone();
        let client = self.context.peers.client_or_at(peer, last);
        tracing::warn!(id = %migration.id, vm = %migration.vm, ?role, "taken up again");
        let origin = Moment::now();
        let known = match record {
            AnyRecord::Source(record) => Known::Outgoing(outgoing::start(
                Arc::clone(&self.context),
                self.journal.clone(),
                outgoing::Beginning {
                    source: Source::recover(record, origin.elapsed()),
                    snapshot,
                    reservation: held,
                    options: Options {
                        convergence: self.context.config.migration.convergence,
                        channels: None,
                        lanes_per_path: self.context.config.migration.lanes_per_path,
                        reduction: self.context.config.migration.reduction,
                        disks: 0,
                    },
                    client,
                    origin,
                    recovered: true,
                },
            )),
            AnyRecord::Destination(record) => {
                let role = held.as_ref().and_then(|held| held.role());
                let known = self.context.registry.held(&migration.vm);
                let of_domain = held.as_ref().filter(|held| held.domain().is_some());
                let defined =
                    of_domain.map_or(known.definition, |held| held.came_with_its_definition());
                let destination = Destination::recover(record, origin.elapsed())
                    .with_guest_that_has_run(role == Some(Role::Running))
                    .with_definition(defined);
                let beginning = incoming::Beginning {
                    destination,
                    snapshot,
                    reservation: held,
                    client,
                    origin,
                    request: None,
                    asked: None,
                };
                let context = Arc::clone(&self.context);
                let lanes = self.lanes.get().cloned();
                match incoming::start(context, self.journal.clone(), lanes, beginning) {
                    Ok((handle, _)) => Known::Incoming(handle),
                    Err(refusal) => {
                        tracing::error!(id = %migration.id, %refusal, "not taken up");
                        return Ok(());
                    }
                }
            }
        };
        self.add(migration.id, known);
        Ok(())
    }

    /// The right to a guest that is no longer, or not yet, part of its migration by its record.
    fn reserve_again(&self, migration: &Migration, role: MigrationRole) -> Option<Reservation> {
        let purpose = match role {
            MigrationRole::Source => Purpose::Outgoing {
                migration: migration.id,
                destination: migration.destination.clone(),
            },
            MigrationRole::Destination => Purpose::Incoming {
                migration: migration.id,
                source: migration.source.clone(),
            },
        };
        let reserved = self
            .context
            .registry
            .reserve_recovered(&migration.vm, purpose);
        if let Err(refusal) = &reserved {
            tracing::warn!(id = %migration.id, %refusal, "guest not reserved");
        }
        reserved.ok()
    }
}

fn take(recovered: &mut Vec<Recovered>, entry: &Entry) -> Option<Reservation> {
    let source = matches!(entry.record, AnyRecord::Source(_));
    let matches = |guest: &Recovered| {
        let is_incoming = matches!(guest.role, Role::Incoming { .. });
        guest.role.migration() == Some(entry.view.id) && is_incoming != source
    };
    let at = recovered.iter().position(matches)?;
    Some(recovered.swap_remove(at).reservation)
}

/// The journal's record that a guest's own record stands for.
fn record_of(guest: &Recovered, host: &HostName) -> Option<AnyRecord> {
    let vm = guest.reservation.name().clone();
    let migration = |id, source: &HostName, destination: &HostName| Migration {
        id,
        vm,
        source: source.clone(),
        destination: destination.clone(),
    };
    let version = JournalVersion;
    Some(match &guest.role {
        Role::Running => return None,
        Role::Outgoing {
            migration: id,
            destination,
        } => AnyRecord::Source(SourceRecord {
            version,
            migration: migration(*id, host, destination),
            step: SourceStep::Transferring,
        }),
        Role::HandedOff {
            migration: id,
            destination,
        } => AnyRecord::Source(SourceRecord {
            version,
            migration: migration(*id, host, destination),
            step: SourceStep::HandedOff,
        }),
        Role::Incoming {
            migration: id,
            source,
        } => AnyRecord::Destination(DestinationRecord {
            version,
            migration: migration(*id, source, host),
            step: DestinationStep::Incoming,
        }),
    })
}
