//! Recognises QEMU's migration streams, version by version, without owning them.
//!
//! ```text
//!   bytes of one channel, in pieces ──▶ Channel::feed ──▶ Found: which bytes that follow are which guest page
//!                                          └─ anything it does not know: opaque from there on, and why
//! ```
//!
//! Pure: nothing is copied but headers, nothing is altered, and what is carried does not depend on what is found. The
//! layouts are those of QEMU's `migration/multifd.h`, `migration/savevm.c` and `migration/ram.c`: 7.2 to 8.2 send zero pages
//! on the main channel, 9.0 and later in the packets of multifd. A guest that moves without multifd, and what follows it by
//! postcopy, has all its pages on the main channel.
//!
//! # Invariant
//! It never guesses: a channel in which anything that says how it goes on is not exactly as known is [`Opaque`] from there
//! on. How the bytes are divided among calls makes no difference. What is kept of a channel is one header,
//! [`limits::HEADER_BYTES_MOST`] at most.

mod block;
mod channel;
mod found;
pub mod limits;
mod main_channel;
mod multifd;
mod opaque;
mod reader;

pub use block::{BLOCK_BITS, Block};
pub use channel::{Channel, Kind, Next};
pub use found::{Found, Page};
pub use opaque::{Compression, Opaque};
