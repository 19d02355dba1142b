//! Guests that another host of the cluster has: what an operator wants of one here is asked there.
//!
//! Only what the others say. A host that does not answer may have the guest; nothing fences it.

use drover_api::{ErrorCode, Refusal, StartRequest, VmView};
use drover_types::{HostName, VmName};

use crate::agent::Context;

/// What the other hosts say of a guest.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// They have a process of it.
    pub on: Vec<HostName>,
    /// They have a saved state of it, from which it would go on.
    pub suspended: Vec<HostName>,
    /// They did not say.
    pub silent: Vec<HostName>,
}

/// Starts a guest here, unless another host says that it has a process of it.
///
/// # Errors
/// As [`crate::registry::Registry::start`], or one has.
pub async fn start(
    context: &Context,
    name: &VmName,
    request: StartRequest,
) -> Result<VmView, Refusal> {
    let silent = nowhere_unless(context, name, |_| None).await?;
    let view = context.registry.start(name, request).await?;
    let note = |host: &HostName| {
        format!("{host} did not say whether it has guest {name} as well: make sure that it has not")
    };
    Ok(VmView {
        notes: silent.iter().map(note).collect(),
        ..view
    })
}

/// Whether a guest may be started here for a run: only if every other host says that it has no process of it. A
/// person can know better; a run cannot.
///
/// # Errors
/// As [`start`], or hosts are silent, or it is not known which there are.
pub async fn surely_nowhere(context: &Context, name: &VmName) -> Result<(), Refusal> {
    let own = &context.config.host;
    let silent = |hosts: &[HostName]| {
        let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
        let names = names.join(", ");
        let message = format!(
            "not every host said whether it has guest {name}, which would run twice then; silent: {names}"
        );
        let next = format!(
            "start droverd there and resume {own} again, or make sure that it runs nowhere and start it with \
             `drover vm start {name}` on {own}"
        );
        let refusal = Refusal::new(ErrorCode::PeerUnreachable, message);
        (!hosts.is_empty()).then(|| refusal.next(next))
    };
    context.peers.are_known()?;
    nowhere_unless(context, name, silent).await?;
    Ok(())
}

/// Asks the other hosts for a guest that is to be started here, unless those that are silent speak against it; and
/// which these are.
async fn nowhere_unless(
    context: &Context,
    name: &VmName,
    speaks_against: impl FnOnce(&[HostName]) -> Option<Refusal>,
) -> Result<Vec<HostName>, Refusal> {
    let held = context.registry.held(name);
    let mut elsewhere = Elsewhere::default();
    // What is refused here needs nobody else's word.
    if held.definition && !held.process {
        context.cordon.check()?;
        context
            .libvirt
            .leaves_room_for(&context.config.host, name)?;
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
        if let Some(host) = elsewhere.suspended.first() {
            let message = format!(
                "guest {name} is suspended on {host}: once it had run here, it would go on there with disks that are \
                 others than in its memory"
            );
            return Err(Refusal::new(ErrorCode::VmElsewhere, message).next(format!(
                "on {host}, `drover vm start {name}` has it go on; with --discard-saved-state it boots"
            )));
        }
        if let Some(refusal) = speaks_against(&elsewhere.silent) {
            return Err(refusal);
        }
        // It may have been said while the others were asked.
        context.cordon.check()?;
    }
    Ok(elsewhere.silent)
}

/// A guest that is not the agent's: that it is libvirt's here, or where it is, if another host says so.
pub async fn or_where<T>(
    context: &Context,
    name: &VmName,
    result: Result<T, Refusal>,
) -> Result<T, Refusal> {
    let refusal = match result {
        Err(refusal) if refusal.code == ErrorCode::NoSuchVm => refusal,
        other => return other,
    };
    if let Some(of_libvirt) = context.libvirt.refusal(&context.config.host, name) {
        return Err(of_libvirt);
    }
    let found = context.peers.ask_for(name).await;
    Err(match found.on.iter().chain(&found.suspended).next() {
        Some(host) => refusal.next(format!("it is on {host}: give orders for it there")),
        None => refusal,
    })
}
