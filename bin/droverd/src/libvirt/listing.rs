//! The agent's own guests and libvirt's domains, side by side.

use std::collections::BTreeMap;
use std::path::Path;

use drover_api::{ErrorCode, Refusal, VmView};
use drover_libvirt::{Description, Xml};
use drover_types::{VmName, with_sources};
use uuid::Uuid;

use super::domains::{tell_twins, views};
use super::preflight::Preflight;
use super::twins::id_of;
use super::{Libvirt, process};
use crate::agent::Context;
use crate::registry::Known;
use crate::{facts, limits};

impl Libvirt {
    fn views(&self) -> Vec<VmView> {
        let pid = |name: &str, uuid| process::pid(Path::new(facts::ROOT), name, uuid);
        views(&self.seen(), pid)
    }
}

/// Every guest of this host, whoever has it.
///
/// # Errors
/// The directory of definitions cannot be read.
pub async fn all(context: &Context) -> Result<Vec<VmView>, Refusal> {
    let mut guests = context.registry.list().await?;
    let mut domains = context.libvirt.views();
    if !domains.is_empty() {
        let (known, _) = context.registry.known().await?;
        tell_twins(&mut guests, &mut domains, &ids(&known));
    }
    guests.append(&mut domains);
    Ok(guests)
}

/// One guest: the agent's own of that name, or else libvirt's domain of that name or id.
///
/// # Errors
/// There is neither.
pub async fn show(context: &Context, name: &VmName) -> Result<VmView, Refusal> {
    let found = context.registry.get(name).await;
    let mut domains = context.libvirt.views();
    match found {
        Ok(mut guest) => {
            let guests = std::slice::from_mut(&mut guest);
            tell_twins(guests, &mut domains, &BTreeMap::new());
            Ok(guest)
        }
        Err(refusal) if refusal.code == ErrorCode::NoSuchVm => {
            let is_meant =
                |vm: &VmView| vm.name == name.as_str() || vm.uuid.as_deref() == Some(name.as_str());
            let mut domain = domains.into_iter().find(is_meant).ok_or(refusal)?;
            let (notes, elsewhere) =
                tokio::join!(notes(context, &domain), elsewhere(context, &domain));
            domain.notes = notes.into_iter().chain(elsewhere).collect();
            Ok(domain)
        }
        Err(refusal) => Err(refusal),
    }
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
    let (Some(connection), Some(id)) = (context.libvirt.seen().connection, id) else {
        return Vec::new();
    };
    let asked = tokio::time::timeout(limits::SHOW, connection.xml(id, Xml::Current));
    let unknown = |why: String| vec![format!("what keeps it on its host is not known: {why}")];
    match asked.await {
        Ok(Ok(xml)) => match Description::read(&xml) {
            Ok(description) => Preflight::of(&description).notes(),
            Err(error) => unknown(error.to_string()),
        },
        Ok(Err(error)) => unknown(with_sources(&error)),
        Err(_) => unknown(format!(
            "libvirt did not describe it within {} s",
            limits::SHOW.as_secs()
        )),
    }
}

/// The ids that the definitions of the agent's own guests give them, by name.
fn ids(known: &[Known]) -> BTreeMap<String, Uuid> {
    let id = |guest: &Known| {
        let id = id_of(&guest.definition.as_ref()?.args)?;
        Some((guest.name.to_string(), id))
    };
    known.iter().filter_map(id).collect()
}
