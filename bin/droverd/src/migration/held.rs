//! The right to a guest that moves, whoever has the guest on this host.
//!
//! A migration's task holds one for as long as it lasts. It asks for nothing that it would have to know of whose the guest is:
//! what there is to be done with the guest's definition, its files and its hypervisor is the holder's.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use drover_api::{NewDisk, Refusal, VmDefinition};
use drover_carrier::Disks;
use drover_hypervisor::{Boxed, MachineError, Movable};
use drover_migrate::Outcome;
use drover_types::{Bytes, VmName};

use crate::libvirt::{DomainRecord, Owed};
use crate::registry::Role;

/// Where a relay and a guest's hypervisor meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// The hypervisor's channels.
    pub qemu: PathBuf,
    /// One channel before these, between those who drive the hypervisors, where such are.
    pub control: Option<PathBuf>,
    /// Channels for disks between that one and these.
    pub disks: Option<Disks>,
}

impl Sockets {
    /// For nothing but a hypervisor.
    pub fn of(qemu: PathBuf) -> Self {
        Self {
            qemu,
            control: None,
            disks: None,
        }
    }
}

/// What a look for a guest's hypervisor found.
#[derive(Debug)]
pub enum Way {
    /// It answers.
    Machine(Arc<dyn Movable>),
    /// It runs, or may, and does not answer: nothing may be concluded of its guest. Why, where more is known.
    Unreachable(Option<String>),
    /// It has ended, certainly.
    Gone,
}

/// The right to a guest that moves. Dropping it gives the right back, and changes nothing by itself.
pub trait Held: Send + Sync + fmt::Debug {
    /// The guest.
    fn name(&self) -> &VmName;

    /// The way to its hypervisor, while there is one that answers.
    fn machine(&self) -> Option<Arc<dyn Movable>>;

    /// The same, made anew where it was lost.
    fn reach(&self) -> Boxed<'_, Way>;

    /// The process that has its memory, where it can be looked at.
    fn pid(&self) -> Option<u32>;

    /// What the guest is here, while it has a process.
    fn role(&self) -> Option<Role>;

    /// Records what the guest is here.
    ///
    /// # Errors
    /// It has no process, or that cannot be written.
    fn set_role(&self, role: Role) -> Result<(), Refusal>;

    /// What the destination is to know of it.
    ///
    /// # Errors
    /// It does not run, or its hypervisor does not tell.
    fn travelling_definition(&self) -> Boxed<'_, Result<VmDefinition, Refusal>>;

    /// The disks that are copied with it, where it is none of libvirt's.
    fn travelling_disks(&self) -> Vec<NewDisk> {
        Vec::new()
    }

    /// Its memory, where its pages may be kept when it leaves.
    fn may_be_kept(&self) -> Option<Bytes>;

    /// Gives it away for good, once that was decided. Calling it again does no harm.
    ///
    /// # Errors
    /// Its definition cannot leave. It must not run here all the same.
    fn hand_off(&self) -> Result<(), Refusal>;

    /// Takes it back that was handed off and then given up. Calling it again does no harm.
    ///
    /// # Errors
    /// Its definition cannot be had.
    fn take_back(&self) -> Result<(), Refusal>;

    /// Makes ready for it, on the host that it goes to: it waits, and does not run by itself at the end.
    ///
    /// # Errors
    /// A precondition does not hold, or its hypervisor does not start; nothing is left then.
    fn start_incoming(
        &self,
        definition: VmDefinition,
    ) -> Boxed<'_, Result<Arc<dyn Movable>, Refusal>>;

    /// What is to be told of how this host was made ready for it.
    fn made_ready(&self) -> Option<String> {
        None
    }

    /// Where the relay of this host, as the source's, listens for its hypervisor: in the relay's own folder, where nothing else
    /// has to be.
    fn way_out(&self, relays_own: Sockets) -> Sockets {
        Sockets::of(relays_own.qemu)
    }

    /// The relay listens there.
    ///
    /// # Errors
    /// Its hypervisor cannot be let in.
    fn relay_listens(&self) -> Boxed<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    /// Where its hypervisor listens for the relay, on the host that it goes to.
    fn way_in(&self) -> Sockets;

    /// Its hypervisor is about to listen for it.
    ///
    /// # Errors
    /// It must not yet; why.
    fn before_it_listens(&self) -> Boxed<'_, Result<(), MachineError>> {
        Box::pin(async { Ok(()) })
    }

    /// It is about to run, where it has arrived. May be called again.
    ///
    /// # Errors
    /// It must not yet; why.
    fn before_it_runs(&self) -> Boxed<'_, Result<(), MachineError>> {
        Box::pin(async { Ok(()) })
    }

    /// It stays here after all. What was changed of it so that it could move is as before, or [owed](Self::owes).
    fn stays(&self) -> Boxed<'_, ()> {
        Box::pin(async {})
    }

    /// What is still to be done of it though its migration ends.
    fn owes(&self) -> Vec<Owed> {
        Vec::new()
    }

    /// What the next agent has to know of it, where it is a domain of libvirt's.
    fn domain(&self) -> Option<&DomainRecord> {
        None
    }

    /// What is left of it where it left, or was to, and what to do.
    fn after(&self, _outcome: &Outcome) -> Option<String> {
        None
    }

    /// What a person may do with a domain that stands still here while nobody says whose it is.
    fn in_doubt(&self) -> Vec<String> {
        Vec::new()
    }

    /// What those who drive its hypervisors tell each other may be lost from now on: the session that carries it has failed, or is
    /// closed before its work was done.
    fn session_ended(&self) {}

    /// Makes it this host's own, right after it was told to run. Calling it again does no harm. `arrived` is what it was taken in
    /// with.
    ///
    /// # Errors
    /// That cannot be written down. It runs here all the same.
    fn adopt<'a>(&'a self, arrived: Option<&'a VmDefinition>) -> Boxed<'a, Result<(), Refusal>>;

    /// It is a domain, which has run here, and whose definition came with it.
    fn came_with_its_definition(&self) -> bool {
        false
    }

    /// It is written down that its migration is over: nothing of that is to be known to the next agent.
    fn over(&self) {}

    /// Ends what is left here of a guest that is another host's, or not to come.
    fn end(&self) -> Boxed<'_, ()>;
}
