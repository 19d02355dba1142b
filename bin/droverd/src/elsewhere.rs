//! Guests that another host of the cluster has: what an operator wants of one here is asked there.
//!
//! Only what the others say. A host that does not answer may have the guest; nothing fences it.

use drover_api::{ErrorCode, Refusal, VmView};
use drover_types::{HostName, VmName};

use crate::agent::Context;

/// What the other hosts say of a guest.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// They have a process of it.
    pub on: Vec<HostName>,
    /// They did not say.
    pub silent: Vec<HostName>,
}

/// Starts a guest here, unless another host says that it has a process of it.
///
/// # Errors
/// As [`crate::registry::Registry::start`], or one has.
pub async fn start(context: &Context, name: &VmName) -> Result<VmView, Refusal> {
    let held = context.registry.held(name);
    let mut elsewhere = Elsewhere::default();
    // What is refused here needs nobody else's word.
    if held.definition && !held.process {
        context.cordon.check()?;
        elsewhere = context.peers.ask_for(name).await;
        if let Some(host) = elsewhere.on.first() {
            let own = &context.config.host;
            let message = format!(
                "{host} has a process of guest {name}: started on {own} as well, it would run twice \
                 and destroy its disks"
            );
            return Err(Refusal::new(ErrorCode::VmElsewhere, message).next(format!(
                "`drover vm show {name}` on {host} tells what it is; one that runs there is moved with \
                 `drover migrate {name} --to {own}`"
            )));
        }
        // It may have been said while the others were asked.
        context.cordon.check()?;
    }
    let view = context.registry.start(name).await?;
    let note = |host: &HostName| {
        format!("{host} did not say whether it has guest {name} as well: make sure that it has not")
    };
    Ok(VmView {
        notes: elsewhere.silent.iter().map(note).collect(),
        ..view
    })
}

/// A guest that is not here: where it is, if another host says so.
pub async fn or_where<T>(
    context: &Context,
    name: &VmName,
    result: Result<T, Refusal>,
) -> Result<T, Refusal> {
    let refusal = match result {
        Err(refusal) if refusal.code == ErrorCode::NoSuchVm => refusal,
        other => return other,
    };
    Err(match context.peers.ask_for(name).await.on.first() {
        Some(host) => refusal.next(format!("it is on {host}: give orders for it there")),
        None => refusal,
    })
}
