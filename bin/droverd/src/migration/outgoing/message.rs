//! What reaches the task of a guest that leaves, and what its parts share.

use std::sync::Arc;
use std::time::Duration;

use drover_api::{Client, EventKind, IncomingOffer, InterruptsView, LeftOut, Refusal};
use drover_carrier::{HeldLimit, TlsKeys};
use drover_hypervisor::qmp::Version;
use drover_hypervisor::{Boxed, MachineError, MigrationProgress, Movable, UnixMicros};
use drover_migrate::source::Input;
use drover_migrate::{CancelledBy, Observation, Question, Reason, Refused};
use drover_relay::Encryption;
use drover_types::{AtDeadline, Bytes, Convergence, Path, ReductionMode, VmName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::hand_off;
use crate::agent::Context;
use crate::checkpoints::Growing;
use crate::migration::carrier::{Carried, Carrier};
use crate::migration::observe::Watcher;
use crate::migration::relays::NoSession;
use crate::migration::trouble::About;
use crate::sharing::Limits;

/// How this guest is to be moved.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How it is brought to its end.
    pub convergence: Convergence,
    /// QEMU's channels, when they are given.
    pub channels: Option<u8>,
    /// Connections on each path to begin with, and the most that it may get.
    pub lanes_per_path: (u8, u8),
    /// What is done so that fewer bytes cross.
    pub reduction: ReductionMode,
    /// Disks that go along, each on a channel of its own.
    pub disks: u16,
}

/// What the next agent should know.
#[derive(Debug, Serialize, Deserialize)]
struct Memo {
    convergence: Convergence,
    /// On which the destination takes lanes.
    data_port: u16,
}

impl Options {
    /// The guest may go on before its pages do, if need be.
    pub fn wants_postcopy(&self) -> bool {
        matches!(self.convergence.deadline(), Some((_, AtDeadline::Postcopy)))
    }

    /// For an agent that takes the migration up again.
    pub fn memo(&self, data_port: u16) -> String {
        let memo = Memo {
            convergence: self.convergence,
            data_port,
        };
        serde_json::to_string(&memo).unwrap_or_default()
    }

    /// Takes over what an earlier agent left; the destination's port for lanes. Where that cannot be read, why:
    /// then nothing is done at a deadline, since it may have had another one or none.
    pub(super) fn remember(&mut self, memo: &str) -> Result<u16, String> {
        match serde_json::from_str::<Memo>(memo) {
            Ok(memo) => {
                self.convergence = memo.convergence;
                Ok(memo.data_port)
            }
            Err(error) => {
                self.convergence.deadline_s = None;
                Err(format!(
                    "what the agent before was told of this migration cannot be read ({error}): it has no \
                     deadline, and new paths do not join it"
                ))
            }
        }
    }
}

/// What reaches the task.
#[derive(Debug)]
pub enum Message {
    /// Something happened.
    Input(Input),
    /// Somebody wants it to end.
    Cancel(CancelledBy, oneshot::Sender<Result<(), Refused>>),
    /// An operator gives the guest up.
    GiveUp(oneshot::Sender<Result<(), Refused>>),
    /// The destination agreed.
    Agreed(Box<Agreed>),
    /// The destination, or this host, refused before anything was changed.
    NotAgreed(NotAgreed),
    /// What protects the lanes that were opened.
    Protected(Encryption),
    /// The relay runs.
    Carries(Carrier),
    /// It stores the guest's pages for its return.
    Keeps(Growing),
    /// What became of the relay that an earlier agent started, and what that left for this one.
    Found(Result<Found, NoSession>),
    /// What the relay of this session reports.
    Carried(Question, Carried),
    /// A look at QEMU.
    Look(Observation, Box<MigrationProgress>),
    /// So much of the guest's memory is more than zeros.
    Memory(Bytes),
    /// In this time the guest wrote to so much of it.
    Dirtied(Duration, Bytes),
    /// The destination's QEMU can be told to let the guest go on before its pages do.
    TakesPostcopy,
    /// This host's can.
    HasPostcopy,
    /// QEMU refuses that.
    PostcopyRefused(MachineError),
    /// A new session carries what is still to follow a guest.
    Reopened(Carrier, Option<u16>),
    /// QEMU goes on over it.
    PagesFollow,
    /// QEMU did not take this downtime limit.
    NotAimed(Duration, MachineError),
    /// QEMU was told to migrate; the watch of it began.
    Begun(Timestamp, Watcher),
    /// What is known by now of something that broke off while this was its session.
    BrokeOff(Question, Input),
    /// The guest stopped for the last round.
    Stopped(UnixMicros),
    /// The guest runs on the destination.
    RunsThere(hand_off::Times),
    /// The guest's hypervisor has ended here, as was seen.
    Gone(Reason),
    /// The connection to QEMU is lost.
    MonitorLost,
    /// There is a connection to QEMU again.
    Reached(Arc<dyn Movable>),
    /// Something does not succeed, and why.
    Trouble(About, String),
    /// What else happened.
    Event(EventKind),
    /// Send no more than this.
    Limits(Limits),
    /// What became of interrupts of interfaces that carry.
    Interrupts(Vec<InterruptsView>),
    /// These paths are to join; answered when they are shown.
    Joining(Vec<Path>, oneshot::Sender<()>),
    /// Limits are divided among these paths, too: lanes may be opened on them.
    Joined(Vec<Path>),
}

/// The relay of an earlier agent.
#[derive(Debug)]
pub struct Found {
    /// It.
    pub carrier: Carrier,
    /// What that agent left for this one.
    pub memo: String,
    /// The limits that it holds.
    pub held: Vec<HeldLimit>,
}

/// Why the destination was not won.
#[derive(Debug)]
pub struct NotAgreed {
    /// For whoever asked.
    pub refusal: Refusal,
    /// The request may have reached the destination all the same.
    pub sent: bool,
}

impl From<Refusal> for NotAgreed {
    /// A refusal that came before anything was sent, or as the answer.
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            sent: false,
        }
    }
}

/// What came of asking the destination.
#[derive(Debug)]
pub struct Agreed {
    /// Its offer.
    pub offer: IncomingOffer,
    /// What is to protect the lanes.
    pub keys: Option<TlsKeys>,
    /// Interfaces that are not used.
    pub left_out: Vec<LeftOut>,
    /// The input for the machine.
    pub input: Input,
    /// What kept the number of channels down, where that is worth a word.
    pub fewer_channels: Option<String>,
}

/// What the parts of the task share; cheap to clone.
#[derive(Debug, Clone)]
pub struct Link {
    pub(super) context: Arc<Context>,
    pub(super) client: Client,
    pub(super) inbox: mpsc::Sender<Message>,
    pub(super) options: Options,
    /// The guest's id, where it is a domain of libvirt's.
    pub(super) domain: Option<VmName>,
    /// The version of the guest's QEMU here, where it is known.
    pub(super) qemu: Option<Version>,
}

impl Link {
    pub(super) async fn tell(&self, message: Message) {
        // The task ends only when the migration has: then nobody needs to know.
        let _ = self.inbox.send(message).await;
    }

    /// A checkpoint grows. Where the task has ended it is given up, and its disk is not waited for.
    pub(super) async fn keeps(&self, growing: Growing) {
        if let Err(untold) = self.inbox.send(Message::Keeps(growing)).await {
            tokio::task::spawn_blocking(move || drop(untold));
        }
    }

    pub(super) async fn input(&self, input: Input) {
        self.tell(Message::Input(input)).await;
    }

    /// Has it told why the guest's hypervisor is not reached, where that is known; false when the task has ended.
    pub(super) fn not_reached(
        &self,
    ) -> impl Fn(Option<String>) -> Boxed<'static, bool> + Send + Sync + use<> {
        let link = self.clone();
        move |why| {
            let link = link.clone();
            Box::pin(async move {
                if let Some(why) = why {
                    link.tell(Message::Trouble(About::Looking, why)).await;
                }
                !link.inbox.is_closed()
            })
        }
    }

    /// Something was done without, or otherwise than usual.
    pub(super) async fn fallback(&self, what: String) {
        self.tell(Message::Event(EventKind::Fallback { what }))
            .await;
    }
}
