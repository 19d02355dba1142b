//! Guests of the agent's own that move, with copies of those disks that are one host's alone where that is ordered: docs/decisions/0043.
//!
//! ```text
//!   source       local ─▶ NewDisk, which travels    copying ── drive ──▶ QEMU ── NBD ──▶ relay ══▶ the other's relay
//!                record: what the next agent has to know                                             │
//!   destination  arriving: files made, exported by QEMU ◀────────────────────────────────────────────┘
//! ```
//! Owns what is told to both QEMUs of disks. Whose the guest is it does not decide: that is the migration's task.
//!
//! # Invariant
//! While it is copied the source's QEMU alone writes to the source's files, and by its copies alone to the destination's. The guest runs at
//! the destination only after nobody can write to its disks from elsewhere, and its memory arrives there only after all of them have.

mod arriving;
mod as_held;
mod clear;
mod copying;
mod drive;
mod local;
mod owed;
mod record;

pub use local::{Local, local};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_api::{ErrorCode, IncomingRequest, MigrateRequest, NewDisk, Refusal};
use drover_migrate::Migration;
use drover_types::{AtDeadline, MigrationId, ReductionMode, VmName};
use tokio::time::Instant;

use self::arriving::Arriving;
use self::copying::Copying;
use self::record::Record;
use super::Migrations;
use super::held::Held;
use super::outgoing::Options;
use super::relays::Relays;
use crate::agent::Context;
use crate::disks::{self, Leaves, Owner};
use crate::libvirt::{Offer, Owed};
use crate::registry::Reservation;

/// The socket of disks' channels, beside that of QEMU's others.
const DISKS_SOCKET: &str = "disks.sock";

/// The right to a guest of the agent's own that moves.
#[derive(Debug)]
pub struct OwnGuest {
    context: Arc<Context>,
    reservation: Reservation,
    migration: MigrationId,
    disks: Disks,
    leaves: Leaves,
    owes: Mutex<Vec<Owed>>,
}

/// What is to be done with its disks.
#[derive(Debug)]
enum Disks {
    /// Both hosts have the same.
    Stay,
    /// They are copied from here.
    Leave(Arc<Copying>),
    /// They are copied to here.
    Arrive(Arriving),
}

impl OwnGuest {
    /// One that leaves with these.
    pub fn leaving(
        context: &Arc<Context>,
        migration: MigrationId,
        reservation: Reservation,
        locals: &[Local],
    ) -> Self {
        let disks = match locals.is_empty() {
            true => Disks::Stay,
            false => {
                let relays = Relays::of(&context.config.runtime);
                let memory = relays.sockets(migration).qemu;
                let record = Record::new(locals, &memory);
                let copying = Copying::new(&context.config.state, migration, record);
                Disks::Leave(Arc::new(copying))
            }
        };
        Self::with(context, migration, reservation, disks)
    }

    /// One that arrives with these.
    pub fn arriving(
        context: &Arc<Context>,
        migration: &Migration,
        reservation: Reservation,
        new: Vec<NewDisk>,
    ) -> Self {
        let disks = match new.is_empty() {
            true => Disks::Stay,
            false => Disks::Arrive(Arriving::new(&migration.source, new)),
        };
        Self::with(context, migration.id, reservation, disks)
    }

    /// One whose migration an earlier agent began.
    ///
    /// # Errors
    /// What that agent wrote down of its disks cannot be read.
    pub fn taken_up(
        context: &Arc<Context>,
        migration: &Migration,
        reservation: Reservation,
    ) -> std::io::Result<Self> {
        let (state, id) = (&context.config.state, migration.id);
        let leaves = migration.source == context.config.host;
        let disks = if leaves {
            match Record::read(state, id)? {
                Some(record) => Disks::Leave(Arc::new(Copying::new(state, id, record))),
                None => Disks::Stay,
            }
        } else if disks::is_recorded(state, id) {
            Disks::Arrive(Arriving::taken_up(
                &migration.source,
                disks::paths(state, id),
            ))
        } else {
            Disks::Stay
        };
        Ok(Self::with(context, id, reservation, disks))
    }

    fn with(
        context: &Arc<Context>,
        migration: MigrationId,
        reservation: Reservation,
        disks: Disks,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            reservation,
            migration,
            disks,
            leaves: Leaves::default(),
            owes: Mutex::default(),
        }
    }

    fn owner(&self) -> Owner {
        Owner::Guest(self.reservation.name().clone())
    }

    /// Those that are copied from here.
    fn leave(&self) -> Option<&Arc<Copying>> {
        match &self.disks {
            Disks::Leave(copying) => Some(copying),
            Disks::Stay | Disks::Arrive(_) => None,
        }
    }

    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        // Nothing that holds it panics.
        self.owes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Migrations {
    /// The right to a guest of the agent's own that arrives, where files can be made for the disks that come with it.
    ///
    /// # Errors
    /// They cannot.
    pub(super) async fn own_to_arrive(
        &self,
        migration: &Migration,
        request: &IncomingRequest,
        reservation: Reservation,
    ) -> Result<Arc<dyn Held>, Refusal> {
        let (context, disks) = (&self.context, request.disks.clone());
        let lacks = |why: String| {
            let (vm, host) = (&migration.vm, &context.config.host);
            let message = format!("guest {vm} cannot come to {host} with its disks: {why}");
            Refusal::new(ErrorCode::HostLacks, message)
        };
        if !disks.is_empty() {
            let owner = Owner::Guest(migration.vm.clone());
            let (looks, state) = (context.libvirt.looks(), &context.config.state);
            let until = Instant::now() + disks::LOOK;
            match disks::offer(looks, state, (&owner, &disks), until).await {
                Offer::Has | Offer::HasRoom(_) => {}
                Offer::Lacks(why) | Offer::NotKnown(why) => return Err(lacks(why)),
            }
        }
        let held = OwnGuest::arriving(context, migration, reservation, disks);
        Ok(Arc::new(held))
    }
}

/// Takes out of what is configured for all guests what cannot be had with disks; what that is.
///
/// # Errors
/// It was asked for.
pub fn without(
    vm: &VmName,
    request: &MigrateRequest,
    options: &mut Options,
) -> Result<Vec<String>, Refusal> {
    let refused = |what: &str, instead: &str| {
        let message = format!("guest {vm} cannot be moved with its disks and {what}");
        Err(Refusal::new(ErrorCode::BadRequest, message).next(instead))
    };
    if request.convergence.at_deadline == Some(AtDeadline::Postcopy) {
        let instead = "migrate it with another end, such as `--at-deadline give-up`";
        return refused("go on by postcopy", instead);
    }
    if !matches!(request.reduction, None | Some(ReductionMode::Off)) {
        return refused("reduced", "migrate it without `--reduction`");
    }
    let mut left_out = Vec::new();
    if options.wants_postcopy() {
        options.convergence.at_deadline = Some(AtDeadline::GiveUp);
        let what = "no postcopy with disks: at its deadline the migration is given up";
        left_out.push(what.to_owned());
    }
    if options.reduction != ReductionMode::Off {
        let mode = options.reduction;
        options.reduction = ReductionMode::Off;
        left_out.push(format!(
            "no bytes are reduced where disks come along ({mode} otherwise)"
        ));
    }
    Ok(left_out)
}

/// By what a disk of a migration goes: for QEMU's copy of it, what that is written to and its export. Both hosts know it.
fn name(migration: MigrationId, number: usize) -> String {
    let id = migration.0.simple().to_string();
    // What time gave it comes first (UUID version 7): the end is another one for each. QEMU takes 31 bytes.
    let end = id.get(20..).unwrap_or(&id);
    format!("drover-{end}-{number}")
}

/// What is told of a guest whose disks cannot be copied.
fn not_copied(vm: &VmName, why: &[String]) -> Refusal {
    let message = format!(
        "guest {vm} cannot be moved with its disks: {}",
        why.join("; ")
    );
    Refusal::new(ErrorCode::DiskNotCopied, message)
        .next("migrate it without `--with-disks` where both hosts share its disks")
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_hypervisor::limits::NODE_NAME;

    #[test]
    fn the_name_of_a_disk_is_one_that_qemu_takes_and_no_other_migrations() {
        let id = |text: &str| text.parse::<MigrationId>().unwrap();
        let one = id("01a201e0-91fb-74db-90ca-f11d9781b84e");
        assert_eq!(name(one, 15), "drover-f11d9781b84e-15");
        assert!(name(one, 15).len() <= NODE_NAME);
        let other = id("01a201e0-91fb-74db-90ca-f11d9781b84f");
        assert_ne!(name(one, 0), name(other, 0));
    }
}
