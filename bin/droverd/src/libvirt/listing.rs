//! The agent's own guests and libvirt's domains, side by side.

use std::collections::BTreeMap;

use drover_api::{ErrorCode, Refusal, VmView};
use drover_libvirt::{CallError, Description, Xml};
use drover_types::{VmName, with_sources};

use super::domains::views;
use super::moving::keeping;
use super::preflight::{COULD_NOT_BE_MOVED, Preflight};
use super::twins::{self, Own, Owns};
use super::virsh::Place;
use super::{Libvirt, Seen, orders};
use crate::agent::Context;
use crate::limits;
use crate::registry::Known;

impl Libvirt {
    async fn views(&self, seen: &Seen) -> Vec<VmView> {
        views(seen, &self.pids(seen).await)
    }
}

/// Every guest of this host, whoever has it.
///
/// # Errors
/// The directory of definitions cannot be read.
pub async fn all(context: &Context) -> Result<Vec<VmView>, Refusal> {
    let mut guests = context.registry.list().await?;
    let mut domains = context.libvirt.views(&context.libvirt.seen()).await;
    if !domains.is_empty() {
        twins::tell(&mut guests, &mut domains, &owns(context).await?);
    }
    guests.append(&mut domains);
    Ok(guests)
}

/// One guest: the agent's own of that name, or else libvirt's domain of that name or id.
///
/// # Errors
/// There is neither, or the directory of definitions cannot be read.
pub async fn show(context: &Context, name: &VmName) -> Result<VmView, Refusal> {
    let refusal = match context.registry.get(name).await {
        Ok(guest) => return Ok(own(context, guest, name)),
        Err(refusal) if refusal.code == ErrorCode::NoSuchVm => refusal,
        Err(refusal) => return Err(refusal),
    };
    let seen = context.libvirt.seen();
    let Some(found) = orders::find(&seen, name) else {
        return Err(refusal);
    };
    let id = Some(found.uuid.to_string());
    let mut domains = context.libvirt.views(&seen).await.into_iter();
    let mut domain = domains.find(|view| view.uuid == id).ok_or(refusal)?;
    twins::tell_domain(&mut domain, &owns(context).await?);
    let (notes, elsewhere) = tokio::join!(notes(context, &domain), elsewhere(context, &domain));
    domain.notes = notes.into_iter().chain(elsewhere).collect();
    Ok(domain)
}

/// A guest of the agent's own, with what is to be known of domains that may be the same.
fn own(context: &Context, mut guest: VmView, name: &VmName) -> VmView {
    let definition = context.registry.as_defined(name);
    let own = definition.map(|definition| (guest.name.clone(), Own::from(&definition)));
    // Which processes they have is not asked here.
    let mut domains = views(&context.libvirt.seen(), &BTreeMap::new());
    let guests = std::slice::from_mut(&mut guest);
    twins::tell(guests, &mut domains, &own.into_iter().collect());
    guest
}

/// That another host has a guest of Drover's of a domain's name, which may be the same.
async fn elsewhere(context: &Context, domain: &VmView) -> Option<String> {
    let name: VmName = domain.name.parse().ok()?;
    let found = context.peers.ask_for(&name).await;
    let host = found.anywhere()?;
    Some(format!(
        "{host} has a guest of Drover's of this name: if it is the same, this one is not to be started"
    ))
}

/// What would keep a domain on its host, and what another one would need for it; nothing of a libvirt that is not reached.
async fn notes(context: &Context, domain: &VmView) -> Vec<String> {
    let id = domain.uuid.as_ref().and_then(|id| id.parse().ok());
    let seen = context.libvirt.seen();
    let (Some(connection), Some(id)) = (&seen.connection, id) else {
        return Vec::new();
    };
    let place = Place {
        host: &context.config.host,
        uri: seen.uri.as_deref(),
    };
    let asked = tokio::time::timeout(limits::SHOW, async {
        let xml = connection.xml(id, Xml::Current).await?;
        Ok::<_, CallError>((xml, connection.beside(id).await?))
    });
    let unknown = |why: String| vec![format!("what keeps it on its host is not known: {why}")];
    match asked.await {
        Ok(Ok((xml, beside))) => match Description::read(&xml) {
            Ok(description) => {
                let kept = keeping(place, &domain.name, &beside).into_iter();
                let kept = kept.map(|why| format!("{COULD_NOT_BE_MOVED}{why}"));
                kept.chain(Preflight::of(&description).notes()).collect()
            }
            Err(error) => unknown(error.to_string()),
        },
        Ok(Err(error)) => unknown(with_sources(&error)),
        Err(_) => unknown(format!(
            "libvirt did not describe it within {} s",
            limits::SHOW.as_secs()
        )),
    }
}

/// The agent's own guests of which more than the name is known.
async fn owns(context: &Context) -> Result<Owns, Refusal> {
    let (known, _) = context.registry.known().await?;
    let own = |guest: &Known| {
        let definition = guest.definition.as_ref()?;
        Some((guest.name.to_string(), Own::from(definition)))
    };
    Ok(known.iter().filter_map(own).collect())
}
