//! Guests that are on this host, or on their way from or to it.

use drover_api::Refusal;
use drover_types::in_short;

use crate::agent::Context;
use crate::migration::Migrations;

/// Says which of the agent's own are in memory here or on their way; nothing where there are none. libvirt's domains are none of
/// its own: they stay when the host leaves its cluster or joins one.
///
/// # Errors
/// The guests of this host cannot be listed.
pub async fn guests(context: &Context, migrations: &Migrations) -> Result<Option<String>, Refusal> {
    let vms = context.registry.list().await?;
    let here = vms.into_iter().filter(|vm| vm.pid.is_some());
    let moving = migrations.under_way().into_iter();
    let names = here
        .map(|vm| vm.name)
        .chain(moving.map(|view| view.vm.to_string()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Ok(None);
    }
    let (own, count) = (&context.config.host, names.len());
    let names = in_short(names.join(", "));
    Ok(Some(format!(
        "{own} has {count} guests in memory or on their way: {names}"
    )))
}
