//! How much a path carries: connections as lanes have them, full of bytes that nobody needs, for a short time.
//!
//! They open as lanes do, at the port that lanes come to, so that a firewall, a route and the kernel treat them alike. What arrived is
//! what the far kernel acknowledged after the beginning, by the near kernel's count.
//!
//! ```text
//!  measure ── preamble with the order's id, proof by its ticket ──▶ Sink
//!          ◀── go on ──────────────────────────────────────────────
//!          ══ zeros, over several connections, as fast as allowed ═▶ (dropped by the kernel)
//! ```

mod measure;
mod sink;

pub use measure::{HeldUpBy, Load, Measured, NotMeasured, measure};
pub use sink::{NotTaken, Sink};

use drover_wire::PREAMBLE_BYTES;

use crate::Ticket;

/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// That whoever has the ticket opened this connection. Which message is meant is in it: no datagram's MAC is one.
fn prove(ticket: &Ticket, preamble: &[u8; PREAMBLE_BYTES]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&ticket.0);
    hasher.update(b"load");
    hasher.update(preamble);
    hasher.finalize()
}
