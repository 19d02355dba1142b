//! From facts, policy and a request to a numbered plan with reasons, or a refusal that says why not.
//!
//! ```text
//!   inventory ─┐                    ┌─ plan: steps in waves, reasons, forecast, what is left
//!   policy    ─┼─ plan() ───────────┤
//!   request   ─┘  simulates it all  └─ refusal: a value with names and numbers
//! ```
//!
//! Owns the decision of what moves where, in which order and why. Never reads a clock, talks to a host
//! or carries anything out: the same facts give the same plan, in whatever order they come, so that a
//! plan can be kept, looked at, and applied as it is ([`Plan::verify`]).
//!
//! # Invariant
//! At every moment of a plan, in whatever order and at whatever pace the moves of a wave are carried out,
//! each host has room for all that is on it or on its way to or from it, with headroom, hard groups end
//! unbroken, and what the policy wants to be able to lose can be lost. A guest that has yet to
//! leave a drained host counts for its groups where it goes.

mod canonical;
pub mod digest;
mod draft;
mod drain;
mod fits;
pub mod invalid;
pub mod inventory;
pub mod limits;
mod losses;
mod model;
mod order;
mod place;
pub mod plan;
pub mod policy;
pub mod precopy;
pub mod processor;
mod reasons;
mod rebalance;
pub mod refusal;
pub mod request;
mod resume;
mod state;
mod still;
pub mod text;
mod units;
mod unmoved;
mod verify;
mod words;

pub use digest::Digest;
pub use inventory::Inventory;
pub use plan::Plan;
pub use policy::ClusterPolicy;
pub use refusal::Refusal;
pub use request::Request;
pub use still::{Progress, Round, check_move};
pub use verify::NotThisPlan;
pub use words::{Account, InvalidWord, QemuVersion, Text, Word};

/// Plans what is asked for.
///
/// # Errors
/// Why there is no plan that keeps to the policy.
pub fn plan(
    inventory: &Inventory,
    policy: &ClusterPolicy,
    request: &Request,
) -> Result<Plan, Refusal> {
    invalid::check(inventory, policy, request)?;
    let model = model::Model::new(inventory, policy, request);
    let draft = match request {
        Request::Drain { hosts, .. } => drain::drain(&model, inventory, hosts)?,
        Request::Resume { host, homes, .. } => resume::resume(&model, inventory, host, homes)?,
        Request::Rebalance {
            min_gain,
            most_moves,
            ..
        } => rebalance::rebalance(&model, inventory, *min_gain, *most_moves)?,
    };
    Ok(draft.finish(Digest::of_inputs(inventory, policy, request)))
}
