//! What of a domain decides whether it can leave this host, and for where: known before anybody orders it.
//!
//! Each domain's description is asked for once and kept for [`limits::FIT_KEPT`], unless what libvirt lists of it has changed.

use std::collections::BTreeMap;

use drover_api::DomainNeed;
use drover_libvirt::{Beside, Connection, Description, Domain, Look, Xml};
use drover_plan::inventory::GuestCpu;
use drover_types::with_sources;
use futures_util::StreamExt as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::conditions::Bond;
use super::disks::LocalDisk;
use super::files::{Hang, Held, Looked};
use super::{beside, conditions, confined, disks, files, limits, needs};
use crate::agent::Context;
use crate::inventory::DisksAs;
use crate::libvirt::Seen;
use crate::libvirt::domains::is_in_memory;
use crate::libvirt::keep::no_systems;
use crate::libvirt::orders;
use crate::libvirt::preflight::{Preflight, has_hosts_processor};
use crate::libvirt::virsh::Place;
use crate::limits::SHOW;

/// Whether a domain can move, as its own host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// Why it cannot leave, whatever other hosts have.
    pub blockers: Vec<String>,
    /// What is to be known of its move.
    pub notes: Vec<String>,
    /// What another host has to have.
    pub needs: Vec<DomainNeed>,
    /// Its processor, as far as a plan compares it.
    pub cpu: GuestCpu,
}

impl Fit {
    /// Of one of which nothing is known.
    pub fn unknown(why: &str) -> Self {
        Self {
            blockers: vec![format!("what it needs of another host is not known: {why}")],
            notes: Vec::new(),
            needs: Vec::new(),
            cpu: GuestCpu::Passthrough,
        }
    }
}

/// What keeps a domain on its host, and which files another one has to have.
#[derive(Debug, Default)]
pub struct Bonds {
    /// Each that keeps it, in words.
    pub obstacles: Vec<String>,
    /// Those that it writes to.
    pub files: Vec<DomainNeed>,
    /// Disks in files that no other host has: they keep it, unless they are copied.
    pub local: Vec<LocalDisk>,
}

impl Bonds {
    /// What is here is to be copied.
    pub async fn with_copies(mut self, domain: Uuid) -> Self {
        let (disks, why_not) = disks::described(&self.local).await;
        self.local.clear();
        self.obstacles.extend(why_not);
        if !disks.is_empty() {
            let uuid = domain.to_string();
            self.files.push(DomainNeed::NewDisks { uuid, disks });
        }
        self
    }

    /// What is here is not to be copied.
    pub fn without_copies(mut self) -> Self {
        self.obstacles
            .extend(self.local.iter().map(LocalDisk::obstacle));
        self.local.clear();
        self
    }
}

#[derive(Debug)]
struct Kept {
    at: Instant,
    domain: Domain,
    fit: Fit,
}

/// What is known of this host's domains.
#[derive(Debug, Default)]
pub struct Fits {
    /// Held while libvirt is asked, so that it is asked once however many want to know.
    kept: Mutex<BTreeMap<(Uuid, DisksAs), Kept>>,
}

/// Of all domains that are in memory: libvirt is asked for some seconds, and then processes and file systems are looked at for as long each.
pub async fn fits(context: &Context, seen: &Seen, as_disks: DisksAs) -> BTreeMap<Uuid, Fit> {
    let mut kept = context.libvirt.fits().kept.lock().await;
    let in_memory = orders::told(seen).filter(|domain| is_in_memory(domain.state));
    let now = Instant::now();
    kept.retain(|_, one| now.duration_since(one.at) < limits::FIT_KEPT);
    let until = now + SHOW;
    let (mut fits, mut asked) = (BTreeMap::new(), Vec::new());
    for domain in in_memory {
        let lately = kept
            .get(&(domain.uuid, as_disks))
            .filter(|one| one.domain == *domain);
        match lately {
            Some(lately) => drop(fits.insert(domain.uuid, lately.fit.clone())),
            None => match ask(seen, domain, until).await {
                Ok(told) => asked.push((domain, told)),
                Err(why) => drop(fits.insert(domain.uuid, Fit::unknown(&why))),
            },
        }
    }
    let described = asked.iter();
    let described: Vec<_> = described
        .map(|(domain, told)| (domain.uuid, &told.description))
        .collect();
    let bonds = all_bonds(context, &described).await;
    let ids = described.iter().map(|(id, _)| *id);
    let bonds = settled(ids.zip(bonds).collect(), as_disks).await;
    for ((domain, told), bonds) in asked.iter().zip(bonds) {
        let fit = fit(context, seen, told, bonds);
        fits.insert(domain.uuid, fit.clone());
        let domain = Domain::clone(domain);
        kept.insert(
            (domain.uuid, as_disks),
            Kept {
                at: now,
                domain,
                fit,
            },
        );
    }
    fits
}

/// Of each domain, with what is to become of disks that no other host has.
async fn settled(bonds: Vec<(Uuid, Bonds)>, as_disks: DisksAs) -> Vec<Bonds> {
    let until = Instant::now() + limits::DISKS_DESCRIBED;
    let each = bonds.into_iter();
    let each = each.map(|(domain, bonds)| settle(domain, bonds, as_disks, until));
    let each = futures_util::stream::iter(each);
    each.buffered(limits::DESCRIBED_AT_ONCE).collect().await
}

async fn settle(domain: Uuid, bonds: Bonds, as_disks: DisksAs, until: Instant) -> Bonds {
    if as_disks == DisksAs::Staying || bonds.local.is_empty() {
        return bonds.without_copies();
    }
    let copied = timeout_at(until, bonds.with_copies(domain)).await;
    copied.unwrap_or_else(|_| {
        let seconds = limits::DISKS_DESCRIBED.as_secs();
        let why = format!(
            "what its disks are, which are to be copied, was not found out within {seconds} s"
        );
        Bonds {
            obstacles: vec![why],
            ..Bonds::default()
        }
    })
}

/// What libvirt tells of a domain.
#[derive(Debug)]
struct Told {
    look: Look,
    beside: Beside,
    description: Description,
}

/// Asks it for that.
///
/// # Errors
/// Why it does not.
async fn ask(seen: &Seen, domain: &Domain, until: Instant) -> Result<Told, String> {
    let connection = seen.connection.as_ref();
    let connection = connection.ok_or_else(|| {
        let why = seen.problem().unwrap_or("it is being looked for");
        format!("libvirt is not reached: {why}")
    })?;
    let late = || {
        let seconds = SHOW.as_secs();
        format!("libvirt did not describe all of its domains within {seconds} s")
    };
    // Calls that nobody waits for any more would keep others from theirs.
    if Instant::now() >= until {
        return Err(late());
    }
    let asked = async {
        let look = connection.look(domain.uuid).await;
        let look = look.map_err(|error| with_sources(&error))?;
        let look = look.ok_or("libvirt has no such domain any more")?;
        let beside = connection.beside(domain.uuid).await;
        Ok::<_, String>(Told {
            look,
            beside: beside.map_err(|error| with_sources(&error))?,
            description: described(connection, domain.uuid).await?,
        })
    };
    timeout_at(until, asked).await.map_err(|_| late())?
}

fn fit(context: &Context, seen: &Seen, told: &Told, bonds: Bonds) -> Fit {
    let Told {
        look,
        beside,
        description,
    } = told;
    let (domain, place) = (
        &look.domain,
        Place {
            host: &context.config.host,
            uri: seen.uri.as_deref(),
        },
    );
    let (note, stands) = match conditions::by_state(place, look) {
        Ok(note) => (note, None),
        Err(refusal) => (None, Some(refusal.message)),
    };
    let mut blockers: Vec<String> = stands.into_iter().chain(bonds.obstacles).collect();
    blockers.extend(beside::keeping(place, &domain.name, beside));
    blockers.extend(place.uri.and_then(no_systems));
    let confined = confined::look(context, &domain.name, &description.confined_by);
    blockers.extend(confined.err().map(|refusal| refusal.message));
    let (mut needs, beyond) = needs::told(bonds.files, &Preflight::of(description).needs);
    needs.extend([
        DomainNeed::Sockets {
            domain: domain.name.clone(),
        },
        DomainNeed::Vacancy {
            name: domain.name.clone(),
            uuid: domain.uuid.to_string(),
        },
    ]);
    if !blockers.is_empty() {
        needs.clear();
    }
    Fit {
        blockers,
        notes: [note, beyond].into_iter().flatten().collect(),
        needs,
        cpu: cpu(description),
    }
}

/// What binds a domain to its host that is so described.
pub async fn bonds(context: &Context, id: Uuid, description: &Description) -> Bonds {
    let mut all = all_bonds(context, &[(id, description)]).await;
    all.pop().unwrap_or_default()
}

/// Of each of these, in their order. All files are looked at in one go.
async fn all_bonds(context: &Context, all: &[(Uuid, &Description)]) -> Vec<Bonds> {
    let writes = |(_, description): &&(Uuid, &Description)| {
        conditions::bound_to_shared_files(description)
            .next()
            .is_some()
    };
    let ids = all.iter().filter(writes).map(|(id, _)| *id).collect();
    let processes = context.libvirt.processes_of(ids).await;
    let pid = |id| processes.get(id).map(|process| process.pid);
    let mut paths = Held::new();
    for (id, description) in all {
        for (_, path) in conditions::bound_to_shared_files(description) {
            paths.entry(path.clone()).or_default().extend(pid(id));
        }
    }
    let looked = context.libvirt.looks().held(paths, SHOW).await;
    let looked = files::told(looked).await;
    let bonds = all.iter();
    bonds
        .map(|(id, description)| bonds_of(description, pid(id), &looked))
        .collect()
}

fn bonds_of(description: &Description, pid: Option<u32>, looked: &Looked) -> Bonds {
    let mut bonds = Bonds {
        obstacles: conditions::obstacles(description),
        ..Bonds::default()
    };
    for (disk, path) in conditions::bound_to_shared_files(description) {
        let found = looked.get(path).cloned();
        // All of them were looked at.
        let found = found.unwrap_or(Err(Hang::Before));
        match conditions::bond(disk, path, pid, found) {
            Ok(Bond::Same(need)) => bonds.files.push(need),
            Ok(Bond::Local(disk)) => bonds.local.push(disk),
            Err(why) => bonds.obstacles.push(why),
        }
    }
    bonds.files.sort();
    bonds.files.dedup();
    bonds
}

async fn described(connection: &Connection, id: Uuid) -> Result<Description, String> {
    let xml = connection.xml(id, Xml::Current).await;
    let xml = xml.map_err(|error| with_sources(&error))?;
    Description::read(&xml).map_err(|error| error.to_string())
}

/// One that is named is compared by libvirt itself.
fn cpu(description: &Description) -> GuestCpu {
    match has_hosts_processor(description) {
        true => GuestCpu::Passthrough,
        false => GuestCpu::Named {
            model: None,
            features: [].into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_its_hosts_or_named_or_emulated_is_told_apart() {
        let of = |xml: &str| {
            let description = Description::read(xml).unwrap();
            let (needs, _) = needs::told(Vec::new(), &Preflight::of(&description).needs);
            let is_one = |need: &DomainNeed| matches!(need, DomainNeed::Processor { .. });
            (cpu(&description), needs.iter().any(is_one))
        };
        let any = GuestCpu::Named {
            model: None,
            features: [].into(),
        };
        let os = "<os><type machine='q35'>hvm</type></os>";
        let passed = format!("<domain type='kvm'>{os}<cpu mode='host-passthrough'/></domain>");
        assert_eq!(of(&passed), (GuestCpu::Passthrough, false));
        let model = "<cpu mode='custom'><model>EPYC-Rome</model></cpu>";
        let named = format!("<domain type='kvm'>{os}{model}</domain>");
        assert_eq!(of(&named), (any.clone(), true));
        for emulated in [model, "<cpu mode='maximum'/>"] {
            let emulated = format!("<domain type='qemu'>{os}{emulated}</domain>");
            assert_eq!(of(&emulated), (any.clone(), false), "{emulated}");
        }
    }
}
