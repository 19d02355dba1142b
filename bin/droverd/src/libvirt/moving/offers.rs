//! Whether this host has what domains need that may come, as it was asked lately.
//!
//! Kernel, files and libvirt are asked, each within a bound. What they say is kept for [`limits::OFFER_KEPT`] from then on for whoever
//! plans; whoever moves a domain has them asked anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use drover_api::{DomainLack, DomainMachine, DomainNeed, DomainNeedsView, ErrorCode, Refusal};
use drover_libvirt::{Connection, Has, Machine, Secret, Tpm, Wanted};
use drover_types::{in_short, with_sources};
use tokio::time::{Instant, timeout_at};

use super::confined;
use super::files;
use super::limits;
use crate::agent::Context;
use crate::disks::{self, Owner};
use crate::facts;
use crate::libvirt::Seen;
use crate::libvirt::domains::name;
use crate::libvirt::orders;
use crate::limits::{DOMAIN_NEEDS_ASKED, SHOW};

/// What this host says to something that it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Offer {
    /// It has it.
    Has,
    /// It has room for these disks, as much on each file system.
    HasRoom(Vec<disks::Share>),
    /// It has not, and how that shows.
    Lacks(String),
    /// It does not know; why.
    NotKnown(String),
}

/// Whether what was found lately will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// It is looked at now.
    Now,
    /// What was found lately will do.
    Lately,
}

/// What this host has lately been asked for.
#[derive(Debug, Default)]
pub struct Offers(Mutex<BTreeMap<DomainNeed, (Instant, Offer)>>);

impl Offers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<DomainNeed, (Instant, Offer)>> {
        // Nothing in here panics while it holds the lock, so a poisoned one is as good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lately(&self, need: &DomainNeed, now: Instant) -> Option<Offer> {
        let kept = self.lock();
        let (at, offer) = kept.get(need)?;
        (now.duration_since(*at) < limits::OFFER_KEPT).then(|| offer.clone())
    }

    /// What was found just now. What is not known is asked for again, and so is which domains and what of their disks are here:
    /// one that has left a moment ago may come back.
    fn keep<'a>(&self, found: impl Iterator<Item = (&'a DomainNeed, &'a Offer)>, now: Instant) {
        let mut kept = self.lock();
        kept.retain(|_, (at, _)| now.duration_since(*at) < limits::OFFER_KEPT);
        for (need, offer) in found {
            kept.remove(need);
            let changes = matches!(
                need,
                DomainNeed::Vacancy { .. } | DomainNeed::NewDisks { .. }
            );
            let is_known = !changes && !matches!(offer, Offer::NotKnown(_));
            if is_known && kept.len() < limits::OFFERS_KEPT {
                kept.insert(need.clone(), (now, offer.clone()));
            }
        }
    }
}

/// What this host says to each of these, in their order.
pub async fn offers(
    context: &Context,
    connection: Option<&Connection>,
    needs: &[DomainNeed],
    fresh: Fresh,
) -> Vec<Offer> {
    let (known, now) = (context.libvirt.offers(), Instant::now());
    let lately = |need| match fresh {
        Fresh::Lately => known.lately(need, now),
        Fresh::Now => None,
    };
    let mut found: Vec<Option<Offer>> = needs.iter().map(lately).collect();
    let unknown = needs.iter().zip(&found);
    let unknown = unknown.filter_map(|(need, found)| found.is_none().then_some(need));
    let there = files::offers(context.libvirt.looks(), unknown).await;
    let is_kept: Vec<bool> = found.iter().map(Option::is_some).collect();
    put(needs, &mut found, &there);
    let has_interface = interfaces(needs).await;
    put(needs, &mut found, &has_interface);
    let mut libvirt = Asked {
        context,
        connection,
        until: Instant::now() + SHOW,
        disks_until: Instant::now() + disks::LOOK,
        confined_by: None,
    };
    let mut offers = Vec::with_capacity(needs.len());
    for (need, found) in needs.iter().zip(found) {
        offers.push(match found {
            Some(offer) => offer,
            None => libvirt.offer(need).await,
        });
    }
    let new = needs.iter().zip(&offers).zip(is_kept);
    known.keep(new.filter(|(_, is_kept)| !is_kept).map(|(new, _)| new), now);
    offers
}

/// Puts what was found of some where nothing was known.
fn put(needs: &[DomainNeed], found: &mut [Option<Offer>], new: &BTreeMap<&DomainNeed, Offer>) {
    for (need, found) in needs.iter().zip(found) {
        if found.is_none() {
            *found = new.get(need).cloned();
        }
    }
}

/// Of interfaces.
async fn interfaces<'a>(needs: &'a [DomainNeed]) -> BTreeMap<&'a DomainNeed, Offer> {
    let is_one = |need: &&DomainNeed| matches!(need, DomainNeed::Interface { .. });
    let asked: Vec<_> = needs.iter().filter(is_one).collect();
    if asked.is_empty() {
        return BTreeMap::new();
    }
    let told = facts::interfaces().await;
    let offer = |need: &'a DomainNeed| {
        let is_it = |called: &str| matches!(need, DomainNeed::Interface { name } if name == called);
        let offer = match &told {
            Ok(all) if all.iter().any(|interface| is_it(&interface.name)) => Offer::Has,
            Ok(_) => Offer::Lacks(format!("{need} is not there")),
            Err(error) => Offer::NotKnown(with_sources(error)),
        };
        (need, offer)
    };
    asked.into_iter().map(offer).collect()
}

/// libvirt, asked for one thing after the other until a time.
struct Asked<'a> {
    context: &'a Context,
    connection: Option<&'a Connection>,
    until: Instant,
    /// Until when folders for disks are looked at.
    disks_until: Instant,
    /// What confines hypervisors here, once that was asked for.
    confined_by: Option<Result<Vec<String>, String>>,
}

impl Asked<'_> {
    async fn offer(&mut self, need: &DomainNeed) -> Offer {
        if let DomainNeed::Vacancy { name, uuid } = need {
            return vacancy(&self.context.libvirt.seen(), name, uuid);
        }
        if let DomainNeed::NewDisks { uuid, disks } = need {
            let looks = self.context.libvirt.looks();
            let Ok(id) = uuid.parse() else {
                return Offer::NotKnown(format!("{uuid:?} is no id of a domain"));
            };
            let (state, owner) = (&self.context.config.state, Owner::Domain(id));
            return disks::offer(looks, state, (&owner, disks), self.disks_until).await;
        }
        let Some(connection) = self.connection else {
            return Offer::NotKnown("libvirt is not reached".to_owned());
        };
        // Calls that nobody waits for any more would keep others from theirs.
        if Instant::now() >= self.until {
            return late();
        }
        let until = self.until;
        let asked = self.ask(connection, need);
        timeout_at(until, asked).await.unwrap_or_else(|_| late())
    }

    async fn ask(&mut self, connection: &Connection, need: &DomainNeed) -> Offer {
        if let DomainNeed::Sockets { domain } = need {
            return self.sockets(connection, domain).await;
        }
        let Some(wanted) = wanted(need) else {
            let why = "this version of the agent does not know what that is";
            return Offer::NotKnown(why.to_owned());
        };
        match connection.has(wanted).await {
            Ok(Has::It) => Offer::Has,
            Ok(Has::Not(why)) => Offer::Lacks(format!("{need} is missing: {why}")),
            Ok(Has::NotKnown(why)) => Offer::NotKnown(why),
            Err(error) => Offer::NotKnown(with_sources(&error)),
        }
    }

    async fn sockets(&mut self, connection: &Connection, domain: &str) -> Offer {
        if self.confined_by.is_none() {
            let models = confined::models(self.context, connection).await;
            self.confined_by = Some(models.map_err(|refusal| refusal.message));
        }
        let models = match &self.confined_by {
            Some(Ok(models)) => models.as_slice(),
            Some(Err(why)) => return Offer::NotKnown(why.clone()),
            None => &[],
        };
        match confined::look_here(self.context, domain, models) {
            Ok(()) => Offer::Has,
            Err(refusal) => Offer::Lacks(refusal.message),
        }
    }
}

fn late() -> Offer {
    let seconds = SHOW.as_secs();
    Offer::NotKnown(format!(
        "libvirt did not answer all of it within {seconds} s"
    ))
}

/// Whether a domain of this name and id could come, as far as libvirt told of its own.
fn vacancy(seen: &Seen, called: &str, uuid: &str) -> Offer {
    let told = orders::told(seen).map(|domain| (&domain.name, domain.uuid));
    let untold = seen.domains.iter().flat_map(|domains| &domains.untold);
    let untold = untold.map(|domain| (&domain.name, domain.uuid));
    let mut all = told.chain(untold);
    let found = all.find(|(name, id)| *name == called || id.to_string() == uuid);
    if let Some((there, id)) = found {
        return Offer::Lacks(format!(
            "libvirt there already has a domain of that name or id: {:?} ({id})",
            name(there)
        ));
    }
    let since = seen.not_told_since().map(str::to_owned);
    match seen.never_told().or(since) {
        Some(why) => Offer::NotKnown(format!("libvirt does not tell of its domains now: {why}")),
        None => Offer::Has,
    }
}

/// What libvirt is asked for; none of what is not libvirt's to tell.
fn wanted(need: &DomainNeed) -> Option<Wanted> {
    Some(match need.clone() {
        DomainNeed::Network { name } => Wanted::Network(name),
        DomainNeed::Volume { pool, volume } => Wanted::Volume { pool, volume },
        DomainNeed::Secret { id } => Wanted::Secret(Secret::Id(id)),
        DomainNeed::SecretFor { usage_type, usage } => Wanted::Secret(Secret::Of {
            kind: usage_type,
            usage,
        }),
        DomainNeed::Machine { machine: of } => Wanted::Machine(machine(of)),
        DomainNeed::Processor {
            machine: of, xml, ..
        } => Wanted::Processor {
            machine: machine(of),
            xml,
        },
        DomainNeed::Tpm {
            machine: of,
            model,
            version,
        } => Wanted::Tpm(machine(of), Tpm { model, version }),
        DomainNeed::SameFile { .. }
        | DomainNeed::NewDisks { .. }
        | DomainNeed::Path { .. }
        | DomainNeed::Interface { .. }
        | DomainNeed::Sockets { .. }
        | DomainNeed::Vacancy { .. }
        | DomainNeed::Unknown => return None,
    })
}

fn machine(of: DomainMachine) -> Machine {
    Machine {
        name: of.machine,
        emulator: of.emulator,
        arch: of.arch,
        kind: of.domain_type,
    }
}

/// What another host is answered that may have domains to give. Whoever asks is a member of the cluster, and learns of any path whether
/// it is there.
///
/// # Errors
/// It asks for too much at once.
pub async fn answer(context: &Context, needs: &[DomainNeed]) -> Result<DomainNeedsView, Refusal> {
    if needs.len() > DOMAIN_NEEDS_ASKED {
        let (count, most) = (needs.len(), DOMAIN_NEEDS_ASKED);
        let message = format!("{count} things that domains need, at most {most} are looked for");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    if let Some(why) = context.libvirt.takes_no_domains() {
        return Ok(DomainNeedsView {
            takes_none: Some(why),
            ..DomainNeedsView::default()
        });
    }
    let connection = context.libvirt.seen().connection;
    let offers = offers(context, connection.as_ref(), needs, Fresh::Lately).await;
    let mut view = DomainNeedsView::default();
    for (need, offer) in (0..).zip(offers) {
        match offer {
            Offer::Has => {}
            Offer::HasRoom(shares) => {
                let told = shares.into_iter().map(|share| share.told(need));
                view.room.extend(told);
            }
            Offer::Lacks(why) => view.lacks.push(lack(need, why)),
            Offer::NotKnown(why) => view.unknown.push(lack(need, why)),
        }
    }
    Ok(view)
}

/// In short: libvirt's words may be long, and an answer has many of them.
fn lack(need: u32, why: String) -> DomainLack {
    let why = in_short(why);
    DomainLack { need, why }
}

/// Whether this host has all that a domain needs which comes now.
///
/// # Errors
/// It has not, or files that it needs cannot be looked at.
pub async fn has_all(
    context: &Context,
    connection: &Connection,
    called: &str,
    needs: &[DomainNeed],
) -> Result<(), Refusal> {
    let (host, vm) = (&context.config.host, name(called));
    if needs.len() > limits::DOMAIN_NEEDS {
        let (count, most) = (needs.len(), limits::DOMAIN_NEEDS);
        let message = format!("a domain that needs {count} things, at most {most} are looked for");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    let offers = offers(context, Some(connection), needs, Fresh::Now).await;
    let lacks = needs.iter().zip(&offers);
    let lacks = lacks.filter_map(|(need, offer)| match offer {
        Offer::Lacks(why) => Some((need, why.as_str())),
        _ => None,
    });
    let (lacking, lacks): (Vec<_>, Vec<_>) = lacks.unzip();
    if !lacks.is_empty() {
        let lacks = lacks.join("; ");
        let message = format!("{host} lacks what domain {vm:?} needs: {lacks}");
        let refusal = Refusal::new(ErrorCode::HostLacks, message);
        // Of new disks what to do is said with what is in their way.
        let has_own_words = |need: &&DomainNeed| matches!(need, DomainNeed::NewDisks { .. });
        return Err(match lacking.iter().all(has_own_words) {
            true => refusal,
            false => refusal.next(format!(
                "have the same there on {host}, or take it out of the domain"
            )),
        });
    }
    // All else libvirt tells by itself. It would wait for these, too, and of those that are written to it does not know at all.
    let unseen = needs.iter().zip(&offers);
    let mut unseen = unseen.filter_map(|(need, offer)| match offer {
        Offer::NotKnown(why) if files::path(need).is_some() || need.must_be_known() => Some(why),
        _ => None,
    });
    let Some(why) = unseen.next() else {
        return Ok(());
    };
    let message =
        format!("whether {host} has the files that domain {vm:?} needs is not known: {why}");
    Err(Refusal::new(ErrorCode::HostLacks, message))
}

/// Takes out what this host itself is said to lack although the domain runs here: what says so is not to be believed of others either. What
/// must be known is asked for all the same.
pub fn believed(needs: Vec<DomainNeed>, offers: &[Offer]) -> Vec<DomainNeed> {
    let both = needs.into_iter().zip(offers);
    let believed =
        both.filter(|(need, offer)| need.must_be_known() || !matches!(offer, Offer::Lacks(_)));
    believed.map(|(need, _)| need).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_libvirt::DomainState;
    use uuid::Uuid;

    use super::super::versions::tests::file;
    use super::*;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};

    fn network(name: &str) -> DomainNeed {
        DomainNeed::Network {
            name: name.to_owned(),
        }
    }

    #[test]
    fn what_is_known_is_kept_for_a_time_and_what_is_not_is_not() {
        let offers = Offers::default();
        let keep =
            |need: &DomainNeed, offer: &Offer, at| offers.keep([(need, offer)].into_iter(), at);
        let began = Instant::now();
        let lacks = Offer::Lacks("no network".to_owned());
        keep(&network("lan"), &lacks, began);
        let unknown = Offer::NotKnown("no answer".to_owned());
        keep(&network("dmz"), &unknown, began);
        assert_eq!(offers.lately(&network("lan"), began), Some(lacks));
        assert_eq!(offers.lately(&network("dmz"), began), None);
        let vacancy = DomainNeed::Vacancy {
            name: "web".to_owned(),
            uuid: "7".to_owned(),
        };
        keep(&vacancy, &Offer::Has, began);
        assert_eq!(offers.lately(&vacancy, began), None, "it may come back");
        let later = began + limits::OFFER_KEPT;
        assert_eq!(offers.lately(&network("lan"), later), None);
        let many: Vec<_> = (0..2 * limits::OFFERS_KEPT)
            .map(|number| network(&number.to_string()))
            .collect();
        offers.keep(many.iter().map(|need| (need, &Offer::Has)), later);
        assert_eq!(offers.lock().len(), limits::OFFERS_KEPT);
    }

    #[test]
    fn a_domains_place_is_taken_by_its_name_or_id_and_not_known_where_libvirt_is_silent() {
        // `domain` gives ids by the length of names.
        let place = |seen: &Seen, id: u128| vacancy(seen, "web", &Uuid::from_u128(id).to_string());
        let none = seen(Vec::new());
        assert_eq!(place(&none, 3), Offer::Has);
        let named = seen(vec![domain("web", DomainState::ShutOff)]);
        let same = seen(vec![domain("fax", DomainState::Running)]);
        for there in [place(&named, 9), place(&same, 3)] {
            assert!(matches!(there, Offer::Lacks(why) if why.contains("already has")));
        }
        let hangs = Seen {
            domains: Some(Arc::new(untold("web", 3))),
            ..seen(Vec::new())
        };
        assert!(matches!(place(&hangs, 9), Offer::Lacks(_)), "it has one");
        let gone = Seen {
            contact: lost(),
            ..none
        };
        assert!(matches!(place(&gone, 3), Offer::NotKnown(_)));
    }

    #[test]
    fn what_its_own_host_is_said_to_lack_is_asked_of_no_other() {
        let needs = vec![network("lan"), network("dmz"), network("san"), file()];
        let offers = [
            Offer::Has,
            Offer::Lacks("no network".to_owned()),
            Offer::NotKnown("no answer".to_owned()),
            Offer::Lacks("nobody can tell".to_owned()),
        ];
        let expected = [network("lan"), network("san"), file()];
        assert_eq!(believed(needs, &offers), expected);
    }
}
