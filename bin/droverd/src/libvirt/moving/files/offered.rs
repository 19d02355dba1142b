//! What this host says when it is asked for files.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;

use drover_api::{DomainNeed, FileSeen};
use drover_types::with_sources;

use super::super::limits;
use super::super::offers::Offer;
use super::found::Found;
use super::looks::{Hang, Looked, Looks};
use super::same::judge;
use super::servers;
use crate::facts;

/// What it says to those of these that are files: all are looked for in one go.
pub async fn offers<'a>(
    looks: &Looks,
    needs: impl Iterator<Item = &'a DomainNeed>,
) -> BTreeMap<&'a DomainNeed, Offer> {
    let asked: Vec<_> = needs.filter_map(|need| Some((need, path(need)?))).collect();
    let paths: BTreeSet<PathBuf> = asked.iter().map(|(_, path)| (*path).clone()).collect();
    let looked = looks.at(paths, limits::LOOK_FOR_FILES).await;
    let own = match asked.iter().any(|(need, _)| need.must_be_known()) {
        true => own_addresses().await,
        false => Vec::new(),
    };
    let offer = |(need, path): (&'a DomainNeed, &PathBuf)| {
        let offer = match looked.get(path)? {
            Ok(found) => offer(need, found, &own),
            Err(hang) => Offer::NotKnown(hang.to_string()),
        };
        Some((need, offer))
    };
    asked.into_iter().filter_map(offer).collect()
}

/// What this host looked at, with whether the servers that it has it from are this host: it is known to others by that.
pub async fn told(mut looked: Looked) -> Looked {
    let mut served = looked.values_mut().filter_map(served).peekable();
    if served.peek().is_some() {
        let own = own_addresses().await;
        served.for_each(|seen| *seen = servers::by_host(seen, &own));
    }
    looked
}

/// What is seen of a file that a server has.
fn served(found: &mut Result<Found, Hang>) -> Option<&mut FileSeen> {
    match found {
        Ok(Found::File { seen, .. }) if seen.server.is_some() => Some(seen),
        _ => None,
    }
}

/// Where a need is a file.
pub fn path(need: &DomainNeed) -> Option<&PathBuf> {
    match need {
        DomainNeed::Path { path } | DomainNeed::SameFile { path, .. } => Some(path),
        _ => None,
    }
}

fn offer(need: &DomainNeed, found: &Found, own: &[IpAddr]) -> Offer {
    match (need, found) {
        (DomainNeed::SameFile { path, seen }, found) => judge(path, seen, found, own),
        (_, Found::Nothing) => Offer::Lacks(format!("{need} is not there")),
        (_, Found::NotKnown(why)) => Offer::NotKnown(why.clone()),
        (_, Found::File { .. } | Found::Other(_)) => Offer::Has,
    }
}

/// By which others may reach this host. Where the kernel does not tell, none is known to be its own.
async fn own_addresses() -> Vec<IpAddr> {
    let told = facts::interfaces().await;
    let told = told.inspect_err(|error| {
        let why = with_sources(error);
        tracing::warn!(why, "this host's own addresses are not known");
    });
    let all = told.into_iter().flatten();
    let all = all.flat_map(|interface| interface.addresses);
    servers::reachable(all.map(|network| network.address()))
}
