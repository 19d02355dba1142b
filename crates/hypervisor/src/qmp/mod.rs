//! A client of QEMU's control protocol, QMP.
//!
//! Owns the connection to one monitor: numbers its commands, so that many can wait at once, and
//! hands out events to any number of readers. It knows no command by name but
//! `qmp_capabilities`; what they mean is its user's business. It never reconnects.
//!
//! ```text
//!   execute ──▶ lines queue ──▶ ┌──────┐ ──▶ monitor
//!   answer  ◀── by id ───────── │ task │ ◀── bounded lines
//!   events  ◀── broadcast ───── └──────┘
//! ```
//!
//! # Invariant
//! Every command ends: with its answer, with the connection's end, or with its time. Events of
//! unknown names pass through; what is no message at all ends the connection with a reason.
//!
//! Source: QEMU's `docs/interop/qmp-spec.rst`.

mod client;
mod connection;
#[cfg(test)]
mod corpus;
mod error;
mod events;
mod lines;
mod message;

pub use client::Qmp;
pub use error::{Closed, ConnectError, QmpError};
pub use events::{Events, Notice};
pub use message::{Event, Version};
pub(crate) use message::{Message, decode, excerpt};
