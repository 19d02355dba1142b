//! From facts of hosts to findings, and to changes that can be undone.
//!
//! Owns no host: it is given what was read, says what of it costs a migration, and describes what would be changed.
//! [`RULES`] is the whole of what is looked at, one line each.
//!
//! ```text
//! Host facts ─▶ examine ─▶ Report: findings, worst first; what was skipped, because; how much is as it should be
//!                             └─▶ Change: steps, each with what is there now, so that it can be undone
//! ```
//!
//! # Invariant
//! What is not known is never a finding and never right: the rule is skipped, and says why.

pub mod arguments;
mod change;
mod cost;
mod document;
pub mod domain;
pub mod facts;
mod finding;
mod folded;
pub mod lasting;
mod link;
mod nameless;
mod negotiation;
mod rates;
mod report;
mod rules;
mod settable;
mod since;
mod sources;

pub use change::{
    Change, Disruption, NicSetting, Step, fec_words, pause_words, quoted, read_pause,
};
pub use document::Document;
pub use finding::{Finding, Line, Severity, Subject};
pub use folded::Folded;
pub use link::{LinkError, LinkStep, LinkWish};
pub use nameless::tells_hardware;
pub use negotiation::{Negotiation, rate_of_mode};
pub use rates::{highest, most};
pub use report::{Report, Right, Skipped, examine};
pub use rules::{RULES, Rule};
pub use settable::{MTU_LEAST, disruption, settable};
pub use since::{Difference, Differences, Known, Trend, differences};
pub use sources::Source;
