//! Whether a guest may be in memory here beside libvirt's domains: one of them may be the same guest, and both would write to its
//! disks.

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::DomainState;
use drover_types::HostName;

use super::domains::{is_in_memory, name};
use super::twins::Own;
use super::virsh::{Order, Place};
use super::{Libvirt, Seen, orders};

/// What libvirt's domains leave of a place for a guest.
#[derive(Debug, PartialEq, Eq)]
pub enum Vacancy {
    /// None that may be the same guest is in memory.
    Free,
    /// Whether one is, is not known; why.
    NotKnown(Refusal),
    /// One is; why the guest may not be here.
    Taken(Refusal),
}

impl Vacancy {
    /// For a person, who may know better: why it is not known, where it is not.
    ///
    /// # Errors
    /// A domain is in memory that may be the same guest.
    pub fn unless_taken(self) -> Result<Option<Refusal>, Refusal> {
        match self {
            Self::Free => Ok(None),
            Self::NotKnown(why) => Ok(Some(why)),
            Self::Taken(why) => Err(why),
        }
    }

    /// For what nobody looks at.
    ///
    /// # Errors
    /// A domain is in memory that may be the same guest, or that is not known.
    pub fn surely(self) -> Result<(), Refusal> {
        self.unless_taken()?.map_or(Ok(()), Err)
    }
}

impl Libvirt {
    /// What its domains leave of a place for a guest that is to run here, as it told of them last.
    pub fn vacancy_for(&self, host: &HostName, guest: &Own) -> Vacancy {
        vacancy(&self.seen(), host, guest)
    }
}

fn vacancy(seen: &Seen, host: &HostName, guest: &Own) -> Vacancy {
    if let Some(refusal) = in_the_way(seen, host, guest) {
        return Vacancy::Taken(refusal);
    }
    let Some(why) = unknown(seen, guest) else {
        return Vacancy::Free;
    };
    let own = guest.name();
    let message =
        format!("it is not known whether libvirt has guest {own} in memory on {host}, too: {why}");
    Vacancy::NotKnown(Refusal::new(ErrorCode::LibvirtNotKnown, message).next(to_know(host)))
}

/// How it becomes known what libvirt has.
fn to_know(host: &HostName) -> String {
    format!(
        "on {host}, `drover status` tells of libvirt: see that libvirtd answers, or set `libvirt.uri` in droverd.toml to \"off\" where \
         nobody uses it, and restart droverd"
    )
}

fn in_the_way(seen: &Seen, host: &HostName, guest: &Own) -> Option<Refusal> {
    let mut in_memory = orders::told(seen).filter(|domain| is_in_memory(domain.state));
    let (domain, likeness) =
        in_memory.find_map(|domain| Some((domain, guest.likeness(&domain.name, domain.uuid)?)))?;
    let (own, shown, word) = (guest.name(), name(&domain.name), likeness.word());
    let old = seen.not_told_since();
    let has = match old {
        None => format!("libvirt has domain {shown:?} in memory on {host}"),
        Some(_) => {
            let said = seen.said_last();
            format!("libvirt of {host} {said} that it has domain {shown:?} in memory")
        }
    };
    let message = format!(
        "{has}, which has the {word} of guest {own}: if that is the same guest, both would write to its disks"
    );
    let refusal = Refusal::new(ErrorCode::DomainInMemory, message);
    if let Some(why) = old {
        let know = to_know(host);
        return Some(refusal.next(format!(
            "libvirt has not told of its domains since: {why}; {know}"
        )));
    }
    // One that stands still must not run for it: the guest may run elsewhere already.
    let order = match domain.state {
        DomainState::Running | DomainState::ShuttingDown => Order::Stop,
        _ => Order::End,
    };
    let uri = seen.uri.as_deref();
    let end = Place { host, uri }.instead(order, &domain.name, Some(domain));
    Some(refusal.next(format!(
        "end that domain, or give one of the two another {word}; {end}"
    )))
}

/// Why it is not known whether one is in memory; none where it is.
fn unknown(seen: &Seen, guest: &Own) -> Option<String> {
    if let Some(why) = seen.never_told() {
        return Some(why);
    }
    let domains = seen.domains.as_ref()?;
    let mut untold = domains.untold.iter();
    if let Some(domain) = untold.find(|d| guest.likeness(&d.name, d.uuid).is_some()) {
        let (shown, why) = (name(&domain.name), &domain.why);
        return Some(format!(
            "libvirt does not tell of its domain {shown:?}: {why}"
        ));
    }
    // It may have been made since, or started.
    let why = seen.not_told_since()?;
    let said = seen.said_last();
    Some(format!(
        "libvirt {said} that it has not, and has not told of its domains since: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::Contact;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};
    use crate::libvirt::twins::tests::own;
    use std::sync::Arc;

    fn vacancy_for(seen: &Seen, guest: &Own) -> Vacancy {
        vacancy(seen, &"a".parse().unwrap(), guest)
    }

    fn taken(vacancy: Vacancy) -> Refusal {
        let Vacancy::Taken(refusal) = vacancy else {
            panic!("{vacancy:?}");
        };
        assert_eq!(refusal.code, ErrorCode::DomainInMemory);
        refusal
    }

    fn not_known(vacancy: Vacancy) -> String {
        let Vacancy::NotKnown(refusal) = vacancy else {
            panic!("{vacancy:?}");
        };
        assert_eq!(refusal.code, ErrorCode::LibvirtNotKnown);
        refusal.message
    }

    #[test]
    fn a_guest_does_not_run_beside_a_domain_of_its_name_or_id_that_is_in_memory() {
        let seen = seen(vec![
            domain("web", DomainState::Paused),
            domain("batch", DomainState::Running),
            domain("off", DomainState::ShutOff),
        ]);
        let by_name = taken(vacancy_for(&seen, &own("web", None)));
        assert!(by_name.message.contains("name of guest web"), "{by_name}");
        let next = by_name.next.unwrap();
        assert!(next.contains("another name"), "{next}");
        assert!(next.ends_with("on a: `virsh destroy web`"), "{next}");
        // `domain` gives ids by the length of names.
        let by_id = taken(vacancy_for(&seen, &own("db", Some(5))));
        assert!(by_id.message.contains("\"batch\" in memory"), "{by_id}");
        assert!(by_id.message.contains("the id of guest db"), "{by_id}");
        assert!(by_id.next.unwrap().contains("`virsh shutdown batch`"));
        assert_eq!(vacancy_for(&seen, &own("off", None)), Vacancy::Free);
        assert_eq!(vacancy_for(&seen, &own("db", Some(9))), Vacancy::Free);
    }

    #[test]
    fn where_libvirt_is_not_used_every_guest_may_run() {
        assert_eq!(vacancy_for(&Seen::off(), &own("web", None)), Vacancy::Free);
        let absent = Seen {
            contact: Contact::Absent("no socket".to_owned()),
            ..Seen::off()
        };
        assert_eq!(vacancy_for(&absent, &own("web", None)), Vacancy::Free);
        let had_none = Seen {
            contact: absent.contact,
            ..seen(Vec::new())
        };
        assert_eq!(vacancy_for(&had_none, &own("web", None)), Vacancy::Free);
    }

    #[test]
    fn where_libvirt_never_told_of_its_domains_no_guest_is_known_to_be_none_of_them() {
        let looking = Seen::looking("qemu:///system");
        let why = not_known(vacancy_for(&looking, &own("web", None)));
        assert!(why.contains("being looked for"), "{why}");
        let never = Seen {
            contact: lost(),
            ..looking
        };
        let why = not_known(vacancy_for(&never, &own("web", None)));
        assert!(why.contains("no socket"), "{why}");
        let vacant = || vacancy_for(&never, &own("web", None));
        let refused = vacant().surely().unwrap_err();
        assert_eq!(refused.code, ErrorCode::LibvirtNotKnown);
        assert!(vacant().unless_taken().unwrap().is_some());
    }

    #[test]
    fn a_domain_may_have_been_made_or_started_since_libvirt_told_of_them() {
        let late = Contact::Connected {
            daemon: "9.0.0".to_owned(),
            hypervisor: "7.2.0".to_owned(),
            late: Some("no socket".to_owned()),
        };
        for contact in [lost(), late] {
            let seen = Seen {
                contact,
                ..seen(vec![domain("web", DomainState::ShutOff)])
            };
            for guest in ["web", "db"] {
                let why = not_known(vacancy_for(&seen, &own(guest, None)));
                assert!(why.contains("that it has not, and has not told"), "{why}");
                assert!(why.ends_with("since: no socket"), "{why}");
            }
        }
    }

    #[test]
    fn what_libvirt_had_when_it_was_lost_is_not_told_as_what_it_has() {
        let seen = Seen {
            contact: lost(),
            ..seen(vec![domain("web", DomainState::Running)])
        };
        let refused = taken(vacancy_for(&seen, &own("web", None)));
        let begin = "libvirt of a said last, at ";
        assert!(refused.message.starts_with(begin), "{refused}");
        let next = refused.next.unwrap();
        assert!(
            next.contains("has not told of its domains since: no socket"),
            "{next}"
        );
        assert!(next.contains("`libvirt.uri` in droverd.toml"), "{next}");
        assert!(!next.contains("virsh"), "{next}");
    }

    #[test]
    fn a_domain_that_libvirt_does_not_tell_of_may_be_in_memory() {
        let mut seen = seen(Vec::new());
        seen.domains = Some(Arc::new(untold("web", 3)));
        let why = not_known(vacancy_for(&seen, &own("web", None)));
        assert!(why.contains("not this"), "{why}");
        not_known(vacancy_for(&seen, &own("db", Some(3))));
        assert_eq!(vacancy_for(&seen, &own("db", None)), Vacancy::Free);
        assert!(vacancy_for(&seen, &own("db", None)).surely().is_ok());
    }
}
