//! Carries a plan of changes out on one host, step by step, so that after any death it is all there or all gone.
//!
//! Owns a folder for each plan, with its journal, and the order in which things are done. It knows neither the kernel nor the
//! network: what is there, what is set and which paths work it is given ([`Hands`], [`Paths`]).
//!
//! ```text
//! Report ─▶ Plan ⇄ file for people
//!            └─▶ Order ─▶ Runner: journal first, then Hands, then Paths ─▶ Outcome
//!                           ▲            and then the files by which it lasts
//!                           └─ Standing: where a journal says that it is, and what is next
//! ```
//!
//! # Invariant
//! What a step is about to change is in the journal, on the disk, before it is changed. Whoever finds a journal without an end goes
//! back, never on; and takes back only what is still as a step left it. One process at a time has any plan of a host open to write;
//! whoever only wants to know where one is reads its [`Account`].
//!
//! What was set is gone with a restart of the host, unless a file was begun with by which it lasts: then a restart is a death like any other.
//!
//! A value of which a driver makes another one is known only once it was read back. A process that dies between the two leaves a
//! value that is nobody's: the rest is taken back, that one is left, and the outcome is [`Outcome::InDoubt`].
//!
//! Those who read files while they run are told of each that was written before that counts; of all that were put back once, when nothing
//! is left to be taken back. Until the journal says that they were, whoever goes on with it tells them again.

mod check;
mod folder;
mod hands;
mod journal;
pub mod limits;
mod moved;
mod order;
mod plan;
mod raised;
mod record;
mod run;
mod sizes;
mod standing;
mod step;
mod text;
mod value;

pub use check::PlanError;
pub use folder::JournalError;
pub use hands::{Hands, Measured, Paths, Performed, Unknown, Untold};
pub use journal::{Account, Alone, Journal};
pub use moved::{Moved, RunError, moved};
pub use order::{Lasts, Order, PathTo};
pub use plan::{LastingFile, LeftOut, Plan, Planned};
pub use raised::Layers;
pub use record::{Outcome, Record};
pub use run::Runner;
pub use sizes::{Now, PathSizes, Sizes};
pub use standing::{Left, Next, Phase, Standing, StandingError};
pub use step::{is, named, same_setting};
pub use text::{FileError, read, write};
