//! Drives the session over lanes: threads, sockets, buffers.
//!
//! A [`Relay`] is one side of one migration. QEMU sees a local UNIX socket; behind it a thread
//! reads and a thread writes for each channel, and a thread sends and a thread receives for each
//! lane. All of them tell the one [`drover_session::Session`] what they did, under a lock that is
//! held for its bookkeeping only, never over I/O, and are handed their next piece of work.
//!
//! ```text
//!  QEMU -- UNIX socket -- channel threads --+             +-- lane threads -- TCP -- peer
//!                                           +-- session --+
//!                         buffers <---------+  (locked)   +--------> buffers
//! ```
//!
//! [`LaneListener`] accepts the lanes of all migrations to this host and hands each to its relay;
//! [`open_lanes`] opens those of a migration from this host, and [`Relay::keep_lanes`] dials again
//! those that are lost.
//!
//! # Invariant
//! What QEMU reads from the relay's socket is what the other QEMU wrote: bytes are carried, never
//! altered, however few of them cross.

mod acceptor;
mod channel;
mod chunk;
mod dialer;
mod errands;
mod goodput;
mod half_open;
mod handshake;
mod lane;
pub mod limits;
mod listener;
mod local;
mod opening;
mod pipes;
mod places;
mod pool;
mod reduction;
mod relay;
mod report;
mod security;
mod shared;
mod sizing;
mod turned_away;
mod turns;

pub use acceptor::Acceptor;
pub use dialer::{PathReport, PathState};
pub use drover_lanes::{
    Encryption, Fingerprint, Identity, NoFingerprint, NoIdentity, NotListening, Target, TcpFacts,
    Tls,
};
pub use drover_pagestore::{DigestKey, SealKey};
pub use drover_reduce::decide::{Slowest, Times, Verdict, Way};
pub use drover_reduce::{Class, Codec, Level, OfCodec, OfCodecs, Section};
pub use drover_session::{ChannelStats, End, ForgottenStats, LaneHealth, LaneId, LaneStats, Stats};
pub use drover_wire::{ByeCode, PREAMBLE_BYTES, Token};
pub use goodput::Goodput;
pub use handshake::{LaneFailure, LanePlan, NotOpened, Opened, Order, open_lanes, probe};
pub use listener::{Expected, LaneListener};
pub use local::{Disks, Sockets};
pub use opening::open_lane;
pub use reduction::{
    BaselineFile, Behind, Decided, ExpandTimes, Expanded, NotAdded, Policy, Reduction, StoredFile,
    StoredPages,
};
pub use relay::Relay;
pub use report::{
    BrokenBy, DataPath, Event, LaneEnd, LaneEnds, LaneReport, NotStarted, Reduced, Report, Settings,
};
pub use security::{Security, new_token};
pub use sizing::{Sizes, sizes};
pub use turned_away::{Cause, TurnedAway};
