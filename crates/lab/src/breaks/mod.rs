//! Hosts of a lab that are badly set up on purpose, for the doctor to find.
//!
//! ```text
//!   catalogue   what is wrong, and the rule that finds it
//!   hand        does it to hosts of a lab
//!   defined     a guest that is defined there
//!   captured    lays what a namespace cannot have over what was captured of its hosts
//!   server      the machine that is laid there: processors, adapters
//!   answers     what ethtool would tell of its adapters
//!   fabric      what bridging and LLDP would tell of their lines
//!   told        both byte by byte, also for captured hosts that tests make up
//!   trial       each on a lab of its own, but for those that leave hosts as they were
//!   look        what the doctor says of it, and how long that took
//!   machine     what it says whatever hosts are like, since the machine is so
//!   table       the same for a person
//! ```
//!
//! # Invariant
//! What was not done to a host but written of it is said to be so, wherever it is shown.

mod answers;
mod captured;
mod catalogue;
mod defined;
mod fabric;
mod hand;
mod look;
mod machine;
mod server;
mod table;
pub mod told;
mod trial;

pub use captured::Captured;
pub use catalogue::{Break, catalogue, named};
pub use hand::{Broken, break_hosts, check, require};
pub use look::Look;
pub use machine::OfMachine;
pub use server::{Files, bare_server};
pub use table::table;
pub use trial::{Clean, Found, LeftOut, Plan, Trials, try_all};
