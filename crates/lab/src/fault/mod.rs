//! What goes wrong with a lab's NICs while a guest moves.
//!
//! ```text
//!   syntax    what happens to which NIC, and when          "cut nic=1 at=50%"
//!   hand      does it to the hosts, and undoes it          nft, tc, ip, ss in their namespaces
//!   driver    waits for each moment of a move, and acts
//!   by_hand   does one now in a lab that is up, and undoes all
//!   ideal     how long the lines that were left would have needed
//! ```
//!
//! Owns no host. Everything is done inside a lab's own namespaces and is gone with them; nothing
//! on the machine itself is ever dropped or slowed.
//!
//! # Invariant
//! After [`Driver::finish`] every NIC is as the lab made it, whatever happened to it.

mod by_hand;
mod driver;
mod hand;
mod ideal;
mod syntax;

pub use by_hand::{harm_now, heal_all};
pub use driver::{Driver, Stage};
pub(crate) use hand::{check, check_always, renamed};
pub use hand::{harm, heal};
pub(crate) use ideal::rate_left;
pub use ideal::{Change, Clean, ideal_ms};
pub use syntax::{Fault, Harm, Moment, NewRate, Side, Which};
