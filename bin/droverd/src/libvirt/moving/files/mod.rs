//! Files that domains need, as this host sees them.
//!
//! ```text
//!   path ─▶ Looks ─ bounded, one at a time on each mount ─▶ way: by links and mounts ─▶ found: what is there, and what by
//!                                                              │ mounts: whose file system that is
//!                                                              │ open: whether QEMU has that open
//!   what the source sees of it ──────────────────────────────▶ same: whether it is that one ─▶ offered
//!                                                              servers: whether that is one machine
//! ```
//! Only looks; whether a domain moves is said by who asked.

mod found;
mod looks;
mod mounts;
mod offered;
mod open;
mod same;
mod servers;
mod way;
mod word;

pub use found::Found;
pub use looks::{Hang, Held, Looked, Looks};
pub use offered::{offers, path, told};
pub use open::{Holds, holder};
