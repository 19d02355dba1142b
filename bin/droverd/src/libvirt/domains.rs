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

/// All of them, with their processes.
pub(super) fn views(seen: &Seen, pids: &BTreeMap<Uuid, u32>) -> Vec<VmView> {
    let pid = |uuid| pids.get(&uuid).copied();
    let lost = match &seen.contact {
        Contact::Lost(why) => Some(why.as_str()),
        _ => None,
    };
    let Some(domains) = &seen.domains else {
        return Vec::new();
    };
    let told = domains.told.iter().map(|domain| {
        let pid = pid(domain.uuid).filter(|_| is_in_memory(domain.state));
        told(domain, lost, pid)
    });
    let untold = domains.untold.iter();
    let untold = untold.map(|domain| untold_of(domain, pid(domain.uuid)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};
    use std::sync::Arc;

    fn shown(seen: &Seen) -> Vec<(String, VmState, Option<u32>)> {
        let told = seen.domains.iter().flat_map(|domains| &domains.told);
        let pids = told.map(|domain| (domain.uuid, 7)).collect();
        let views = views(seen, &pids).into_iter();
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
        let views = views(&seen, &BTreeMap::new());
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
        for view in views(&seen, &BTreeMap::new()) {
            let problem = view.problem.unwrap();
            assert!(problem.contains("no socket"), "{problem}");
        }
    }

    #[test]
    fn a_domain_that_libvirt_does_not_tell_of_is_there_with_its_words() {
        let mut seen = seen(Vec::new());
        seen.domains = Some(Arc::new(untold("web", 3)));
        let views = views(&seen, &BTreeMap::new());
        assert_eq!(views[0].state, VmState::Unknown);
        assert!(views[0].problem.as_ref().unwrap().contains("not this"));
    }
}
