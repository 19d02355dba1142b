//! libvirt's domains, for those who look for what costs them. They are asked about, and nothing is done to them.
//!
//! # Invariant
//! Only what rules ask about leaves this host: a domain's XML may have secrets in it.

use drover_libvirt::{Connection, DomainState, SYSTEM_URI, Untold, Why, Xml};
use drover_tune::domain::{brief, cards, is_accelerated, read};
use drover_tune::facts::{Definition, Domain, Element, Fact, Guest, Seen};
use drover_types::{Bytes, with_sources};
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::guests::read_process;
use super::process::Process;
use crate::agent::Context;
use crate::libvirt::{Seen as Libvirt, is_in_memory, name};
use crate::limits;

/// Of one that has no process.
const OFF: &str = "it does not run";

/// All that libvirt tells of, by their names; none where there is no libvirt.
pub async fn domains(context: &Context, at_once: &Semaphore) -> Fact<Vec<Guest>> {
    let seen = context.libvirt.seen();
    if let Some(why) = seen.never_told() {
        return Fact::unknown(format!("libvirt's domains there are not known: {why}"));
    }
    let Some(domains) = &seen.domains else {
        return Fact::Known(Vec::new());
    };
    let pids = context.libvirt.pids(&seen).await;
    let asks = Asks {
        seen: &seen,
        until: Instant::now() + limits::SHOW,
    };
    let mut guests: Vec<_> = domains.untold.iter().map(|one| asks.untold(one)).collect();
    let mut told = Vec::new();
    for domain in &domains.told {
        match asks.on_its_way(domain).await {
            None => told.push((domain, asks.told(domain).await)),
            Some(why) => guests.push(Guest {
                vcpus: domain.vcpus.into(),
                memory: domain.memory,
                ..asks.unknown(&domain.name, why)
            }),
        }
    }
    let read = told.into_iter().map(|(domain, told)| {
        let pid = pids.get(&domain.uuid).copied();
        guest(domain, told, pid, at_once)
    });
    guests.extend(join_all(read).await);
    guests.sort_by(|one, other| one.name.cmp(&other.name));
    Fact::Known(guests)
}

/// Questions to libvirt, one after another, as its connection makes them: while one domain hangs no other is told of.
struct Asks<'s> {
    seen: &'s Libvirt,
    /// Until when they are asked.
    until: Instant,
}

impl Asks<'_> {
    /// None where libvirt's own command reaches it by itself.
    fn uri(&self) -> Option<String> {
        let uri = self.seen.uri.as_deref();
        uri.filter(|uri| *uri != SYSTEM_URI).map(str::to_owned)
    }

    fn untold(&self, domain: &Untold) -> Guest {
        let why = format!("libvirt does not tell of it: {}", domain.why);
        self.unknown(&domain.name, why)
    }

    /// One of which nothing more is known.
    fn unknown(&self, called: &str, why: String) -> Guest {
        Guest {
            name: name(called),
            vcpus: 0,
            memory: Bytes(0),
            definition: Definition::Libvirt(Domain {
                uri: self.uri(),
                persistent: true,
                next: Fact::unknown(why.clone()),
                now: Fact::unknown(why.clone()),
            }),
            seen: Fact::unknown(why),
        }
    }

    /// Why a domain that stands still is not looked at: where it runs it is told of.
    async fn on_its_way(&self, domain: &drover_libvirt::Domain) -> Option<String> {
        let connection = self.seen.connection.as_ref()?;
        if domain.state != DomainState::Paused {
            return None;
        }
        match timeout_at(self.until, connection.look(domain.uuid)).await {
            Ok(Ok(look)) => moves(look?.why),
            Ok(Err(error)) => Some(with_sources(&error)),
            Err(_) => Some(not_in_time()),
        }
    }

    async fn told(&self, domain: &drover_libvirt::Domain) -> Domain {
        let next = self.xml(domain.uuid, Xml::Definition).await;
        let now = match is_in_memory(domain.state) {
            true => self.xml(domain.uuid, Xml::Current).await,
            false => Fact::unknown(OFF),
        };
        Domain {
            uri: self.uri(),
            persistent: domain.persistent,
            next,
            now,
        }
    }

    async fn xml(&self, id: Uuid, kind: Xml) -> Fact<Element> {
        let Some(connection) = &self.seen.connection else {
            let why = self.seen.problem().unwrap_or("it is being looked for");
            return Fact::unknown(format!("libvirt is not reached: {why}"));
        };
        let told = self.described(connection, id, kind).await;
        let told = told.and_then(|xml| read(&xml));
        match told {
            Err(why) => Fact::Unknown(why),
            Ok(now) if kind == Xml::Current => Fact::Known(brief(&now)),
            Ok(next) => Fact::Known(next),
        }
    }

    async fn described(
        &self,
        connection: &Connection,
        id: Uuid,
        kind: Xml,
    ) -> Result<String, String> {
        match timeout_at(self.until, connection.xml(id, kind)).await {
            Ok(Ok(xml)) => Ok(xml),
            Ok(Err(error)) => Err(with_sources(&error)),
            Err(_) => Err(not_in_time()),
        }
    }
}

fn not_in_time() -> String {
    format!(
        "libvirt did not describe all of its domains within {} s",
        limits::SHOW.as_secs()
    )
}

/// Whether it stands still for a migration, from here or to here. One that arrives is started for that.
fn moves(why: Why) -> Option<String> {
    let moves = matches!(why, Why::Migrating | Why::Postcopy | Why::StartingUp);
    moves.then(|| {
        format!("it is not looked at while it is on its way: it stands still because {why}")
    })
}

async fn guest(
    domain: &drover_libvirt::Domain,
    told: Domain,
    pid: Option<u32>,
    at_once: &Semaphore,
) -> Guest {
    let seen = match is_in_memory(domain.state) {
        true => Fact::Known(process(pid, &told.now, at_once).await),
        false => Fact::unknown(OFF),
    };
    Guest {
        name: name(&domain.name),
        vcpus: domain.vcpus.into(),
        memory: domain.memory,
        definition: Definition::Libvirt(told),
        seen,
    }
}

/// What its process shows, and with what it was started: without the one rules ask for nothing of the other.
async fn process(pid: Option<u32>, now: &Fact<Element>, at_once: &Semaphore) -> Seen {
    let process = match (pid, now) {
        (_, Fact::Unknown(why)) => Process::unknown(why),
        (None, _) => Process::unknown("its process was not found"),
        (Some(pid), _) => read_process(Vec::new(), Some(pid), at_once).await.1,
    };
    let (accelerated, cards) = match now {
        Fact::Unknown(why) => (Fact::unknown(why), Fact::unknown(why)),
        Fact::Known(now) => {
            let accelerated = is_accelerated(now).map_or_else(Fact::Unknown, Fact::Known);
            (accelerated, Fact::Known(cards(now)))
        }
    };
    process.seen(accelerated, cards)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_stands_still_for_a_migration_is_on_its_way_and_no_other_is() {
        for why in [Why::Migrating, Why::Postcopy, Why::StartingUp] {
            let said = moves(why).unwrap();
            assert!(said.ends_with(&format!("because {why}")), "{said}");
        }
        for why in [Why::Asked, Why::DiskFailed, Why::Watchdog, Why::Other(3)] {
            assert_eq!(moves(why), None, "{why}");
        }
    }
}
