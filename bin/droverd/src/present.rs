//! Guests that are on this host, or on their way from or to it.

use drover_api::Refusal;
use drover_types::in_short;

use crate::agent::Context;
use crate::migration::Migrations;

/// Says which of the agent's own are in memory here or on their way; nothing where there are none.
///
/// # Errors
/// The guests of this host cannot be listed.
pub async fn guests(context: &Context, migrations: &Migrations) -> Result<Option<String>, Refusal> {
    let names = names(context, migrations).await?;
    Ok(said(context, names))
}

/// The same of all that use this host's network: libvirt's domains, too.
///
/// # Errors
/// As for [`guests`].
pub async fn guests_and_domains(
    context: &Context,
    migrations: &Migrations,
) -> Result<Option<String>, Refusal> {
    let mut names = names(context, migrations).await?;
    let domains = context.libvirt.in_memory().into_iter();
    names.extend(domains.map(|name| format!("libvirt's {name}")));
    Ok(said(context, names))
}

async fn names(context: &Context, migrations: &Migrations) -> Result<Vec<String>, Refusal> {
    let vms = context.registry.list().await?;
    let here = vms.into_iter().filter(|vm| vm.pid.is_some());
    let moving = migrations.under_way().into_iter();
    let names = here
        .map(|vm| vm.name)
        .chain(moving.map(|view| view.vm.to_string()));
    Ok(names.collect())
}

fn said(context: &Context, mut names: Vec<String>) -> Option<String> {
    names.sort();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let (own, count) = (&context.config.host, names.len());
    let names = in_short(names.join(", "));
    Some(format!(
        "{own} has {count} guests in memory or on their way: {names}"
    ))
}
