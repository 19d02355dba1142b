//! libvirt's domains as guests are shown.

use std::collections::BTreeMap;

use drover_api::{VmSource, VmState, VmView};
use drover_libvirt::{Domain, DomainState, Untold};
use drover_plan::Text;
use uuid::Uuid;

use super::seen::{Contact, Seen};

/// Whether a domain in this state has, or may have, its memory on the host.
pub fn is_in_memory(state: DomainState) -> bool {
    state != DomainState::ShutOff
}

/// A domain's name as it may be shown: libvirt takes nearly any text.
pub fn name(name: &str) -> String {
    Text::from(name.to_owned()).to_string()
}

/// All of them. `pid` tells a domain's process.
pub(super) fn views(seen: &Seen, pid: impl Fn(&str, Uuid) -> Option<u32>) -> Vec<VmView> {
    let lost = match &seen.contact {
        Contact::Lost(why) => Some(why.as_str()),
        _ => None,
    };
    let Some(domains) = &seen.domains else {
        return Vec::new();
    };
    let told = domains.told.iter().map(|domain| {
        let pid = is_in_memory(domain.state).then(|| pid(&domain.name, domain.uuid));
        told(domain, lost, pid.flatten())
    });
    let untold = domains.untold.iter();
    let untold = untold.map(|domain| untold_of(domain, pid(&domain.name, domain.uuid)));
    let mut views: Vec<_> = told.chain(untold).collect();
    views.sort_by(|one, other| one.name.cmp(&other.name));
    views
}

fn told(domain: &Domain, lost: Option<&str>, pid: Option<u32>) -> VmView {
    let now = state(domain.state);
    let (state, problem) = match lost {
        Some(why) => {
            let then = words(domain.state);
            let problem =
                format!("libvirt is not reached, which said last that it is {then}: {why}");
            let state = match is_in_memory(domain.state) {
                true => VmState::Unreachable,
                false => now,
            };
            (state, Some(problem))
        }
        None => (now, problem(domain.state)),
    };
    VmView {
        memory: Some(domain.memory),
        vcpus: Some(domain.vcpus.into()),
        ..view(&domain.name, domain.uuid, state, pid, problem)
    }
}

fn untold_of(domain: &Untold, pid: Option<u32>) -> VmView {
    let problem = format!("libvirt does not tell of it: {}", domain.why);
    view(
        &domain.name,
        domain.uuid,
        VmState::Unknown,
        pid,
        Some(problem),
    )
}

fn view(
    domain: &str,
    uuid: Uuid,
    state: VmState,
    pid: Option<u32>,
    problem: Option<String>,
) -> VmView {
    VmView {
        name: name(domain),
        state,
        source: VmSource::Libvirt,
        uuid: Some(uuid.to_string()),
        memory: None,
        vcpus: None,
        definition: None,
        pid,
        qemu_version: None,
        machine: None,
        since: None,
        last_exit: None,
        migration: None,
        problem,
        notes: Vec::new(),
    }
}

/// As a guest's state.
pub fn state(state: DomainState) -> VmState {
    match state {
        // As a guest of our own that sleeps.
        DomainState::Running | DomainState::Asleep => VmState::Running,
        DomainState::Paused => VmState::Paused,
        DomainState::ShuttingDown => VmState::Stopping,
        DomainState::ShutOff => VmState::Stopped,
        DomainState::Crashed => VmState::Failed,
        DomainState::Other(_) => VmState::Unknown,
    }
}

/// A state as libvirt's own command says it.
pub(super) fn words(state: DomainState) -> String {
    let words = match state {
        DomainState::Running => "running",
        DomainState::Paused => "paused",
        DomainState::ShuttingDown => "in shutdown",
        DomainState::ShutOff => "shut off",
        DomainState::Crashed => "crashed",
        DomainState::Asleep => "asleep",
        DomainState::Other(number) => return format!("in state {number}"),
    };
    words.to_owned()
}

fn problem(state: DomainState) -> Option<String> {
    match state {
        DomainState::Crashed => Some("it crashed, as libvirt says".to_owned()),
        DomainState::Other(number) => Some(format!(
            "libvirt says that it is in state {number}, which this agent does not know"
        )),
        _ => None,
    }
}

/// Says at both of two guests that have one name, or one id, that there is another. `ids` are those of the agent's own
/// guests that have one, by name.
pub(super) fn tell_twins(own: &mut [VmView], domains: &mut [VmView], ids: &BTreeMap<String, Uuid>) {
    for domain in domains {
        let id: Option<Uuid> = domain.uuid.as_ref().and_then(|id| id.parse().ok());
        for guest in own.iter_mut() {
            let (name, other) = (&guest.name, &domain.name);
            let (of_guest, of_domain) = if name == other {
                (
                    "libvirt has a domain of this name, too".to_owned(),
                    "the agent has a guest of this name, too, which orders by the name are for"
                        .to_owned(),
                )
            } else if id.is_some() && ids.get(name) == id.as_ref() {
                (
                    format!("libvirt's domain {other:?} has the same id"),
                    format!("the agent's guest {name} has the same id"),
                )
            } else {
                continue;
            };
            let same = "if it is the same one, see that it is started by one of them only";
            add_problem(guest, &format!("{of_guest}: {same}"));
            add_problem(domain, &format!("{of_domain}: {same}"));
        }
    }
}

fn add_problem(view: &mut VmView, more: &str) {
    let words = match view.problem.take() {
        Some(problem) => format!("{problem}; {more}"),
        None => more.to_owned(),
    };
    view.problem = Some(words);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};
    use std::sync::Arc;

    fn shown(seen: &Seen) -> Vec<(String, VmState, Option<u32>)> {
        let views = views(seen, |_, _| Some(7)).into_iter();
        views.map(|vm| (vm.name, vm.state, vm.pid)).collect()
    }

    #[test]
    fn domains_are_shown_as_guests_by_name_and_a_process_only_of_those_in_memory() {
        let seen = seen(vec![
            domain("web", DomainState::Running),
            domain("Käfer 1", DomainState::Paused),
            domain("off", DomainState::ShutOff),
            domain("odd", DomainState::Other(9)),
        ]);
        let name = str::to_owned;
        let expected = [
            (name("Käfer 1"), VmState::Paused, Some(7)),
            (name("odd"), VmState::Unknown, Some(7)),
            (name("off"), VmState::Stopped, None),
            (name("web"), VmState::Running, Some(7)),
        ];
        assert_eq!(shown(&seen), expected);
        let views = views(&seen, |_, _| None);
        let web = &views[3];
        assert_eq!((web.source, web.vcpus), (VmSource::Libvirt, Some(2)));
        assert_eq!(web.memory.unwrap().0, 4 << 30);
        assert!(web.uuid.is_some() && web.problem.is_none());
    }

    #[test]
    fn domains_of_a_libvirt_that_is_lost_are_shown_as_they_were_with_why() {
        let mut seen = seen(vec![
            domain("web", DomainState::Running),
            domain("off", DomainState::ShutOff),
        ]);
        seen.hear(lost().into());
        let name = str::to_owned;
        let expected = [
            (name("off"), VmState::Stopped, None),
            (name("web"), VmState::Unreachable, Some(7)),
        ];
        assert_eq!(shown(&seen), expected);
        for view in views(&seen, |_, _| None) {
            let problem = view.problem.unwrap();
            assert!(problem.contains("no socket"), "{problem}");
        }
    }

    #[test]
    fn a_domain_that_libvirt_does_not_tell_of_is_there_with_its_words() {
        let mut seen = seen(Vec::new());
        seen.domains = Some(Arc::new(untold("web", 3)));
        let views = views(&seen, |_, _| None);
        assert_eq!(views[0].state, VmState::Unknown);
        assert!(views[0].problem.as_ref().unwrap().contains("not this"));
    }

    #[test]
    fn two_guests_of_one_name_or_id_are_both_said_to_be_there() {
        let mut domains = views(
            &seen(vec![
                domain("web", DomainState::Running),
                domain("other", DomainState::ShutOff),
            ]),
            |_, _| None,
        );
        let own = |name: &str| VmView {
            source: VmSource::Drover,
            uuid: None,
            ..view(name, Uuid::nil(), VmState::Stopped, None, None)
        };
        let mut guests = [own("db"), own("web"), own("free")];
        // `domain` gives ids by the length of names.
        let ids = BTreeMap::from([("db".to_owned(), Uuid::from_u128(5))]);
        tell_twins(&mut guests, &mut domains, &ids);
        let problem = |view: &VmView| view.problem.clone().unwrap_or_default();
        assert!(problem(&guests[0]).contains("\"other\" has the same id"));
        assert!(problem(&guests[1]).contains("a domain of this name"));
        assert_eq!(guests[2].problem, None);
        assert!(problem(&domains[0]).contains("guest db has the same id"));
        assert!(problem(&domains[1]).contains("a guest of this name"));
    }
}
