//! What libvirt has of a guest that another host asks for.

use drover_api::DomainHeld;
use drover_types::VmName;

use super::domains::is_in_memory;
use super::orders::find;
use super::{Contact, Libvirt, Seen};

impl Libvirt {
    /// What it has of this name or id; none where it is not looked at, and no process is there.
    ///
    /// A QEMU outlives libvirtd: a process that was started for a domain is in memory, whatever libvirt says or does not, and also where
    /// the agent looks at no libvirt. It is looked for by the domain's id; where that takes longer than [`SHOW`](crate::limits::SHOW) it is
    /// not known.
    pub async fn holds(&self, vm: &VmName) -> Option<DomainHeld> {
        let seen = self.seen();
        let held = holds(&seen, vm);
        let id = find(&seen, vm).map(|found| found.uuid);
        let id = id.or_else(|| vm.as_str().parse().ok());
        if held != Some(DomainHeld::InMemory)
            && let Some(id) = id
        {
            let (found, looked_for) = self.processes.look_for(&[id].into()).await;
            if !found.is_empty() {
                return Some(DomainHeld::InMemory);
            }
            if !looked_for {
                return Some(DomainHeld::NotKnown);
            }
        }
        held
    }
}

/// What it was last told to have counts only for as long as it says so: what is in memory may have been started since.
fn holds(seen: &Seen, vm: &VmName) -> Option<DomainHeld> {
    if seen.contact == Contact::Off {
        return None;
    }
    let found = find(seen, vm);
    if let Some(found) = found
        && found.told.is_some_and(|domain| is_in_memory(domain.state))
    {
        return Some(DomainHeld::InMemory);
    }
    let is_old = seen.never_told().is_some() || seen.not_told_since().is_some();
    Some(match found {
        _ if is_old => DomainHeld::NotKnown,
        None => DomainHeld::Absent,
        Some(found) if found.told.is_some() => DomainHeld::Off,
        Some(_) => DomainHeld::NotKnown,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use drover_libvirt::DomainState;
    use uuid::Uuid;

    use super::*;
    use crate::libvirt::process::tests::Qemu;
    use crate::libvirt::seen::tests::{domain, lost, seen, untold};

    fn web(seen: &Seen) -> Option<DomainHeld> {
        holds(seen, &"web".parse().unwrap())
    }

    #[test]
    fn what_libvirt_has_of_a_guest_is_told_by_its_name_or_id() {
        let runs = seen(vec![domain("web", DomainState::Paused)]);
        assert_eq!(web(&runs), Some(DomainHeld::InMemory));
        // `domain` gives ids by the length of names.
        let id = Uuid::from_u128(3).to_string().parse().unwrap();
        assert_eq!(holds(&runs, &id), Some(DomainHeld::InMemory));
        let off = seen(vec![domain("web", DomainState::ShutOff)]);
        assert_eq!(web(&off), Some(DomainHeld::Off));
        assert_eq!(web(&seen(Vec::new())), Some(DomainHeld::Absent));
    }

    #[tokio::test]
    async fn a_domain_whose_qemu_runs_is_in_memory_whatever_libvirt_tells() {
        let id = Uuid::now_v7();
        let named = drover_libvirt::Domain {
            uuid: id,
            ..domain("web", DomainState::ShutOff)
        };
        let stopped = Seen {
            contact: Contact::Absent("no socket".to_owned()),
            ..Seen::looking("qemu:///system")
        };
        let seens = [
            (stopped, DomainHeld::Absent),
            (seen(Vec::new()), DomainHeld::Absent),
            (seen(vec![named]), DomainHeld::Off),
        ];
        let name: VmName = id.to_string().parse().unwrap();
        for (seen, without) in seens {
            let libvirt = Libvirt::at_rest(seen);
            assert_eq!(libvirt.holds(&name).await, Some(without));
            let qemu = Qemu::of(id);
            assert_eq!(libvirt.holds(&name).await, Some(DomainHeld::InMemory));
            drop(qemu);
        }
        let off = Libvirt::at_rest(Seen::off());
        assert_eq!(off.holds(&name).await, None);
        let _qemu = Qemu::of(id);
        assert_eq!(off.holds(&name).await, Some(DomainHeld::InMemory));
    }

    #[test]
    fn what_libvirt_does_not_tell_is_not_known_and_what_nobody_looks_at_is_not_told() {
        let untold = Seen {
            domains: Some(Arc::new(untold("web", 3))),
            ..seen(Vec::new())
        };
        assert_eq!(web(&untold), Some(DomainHeld::NotKnown));
        let before = |state| Seen {
            contact: lost(),
            ..seen(vec![domain("web", state)])
        };
        assert_eq!(
            web(&before(DomainState::ShutOff)),
            Some(DomainHeld::NotKnown)
        );
        assert_eq!(
            web(&before(DomainState::Running)),
            Some(DomainHeld::InMemory)
        );
        assert_eq!(
            web(&Seen::looking("qemu:///system")),
            Some(DomainHeld::NotKnown)
        );
        assert_eq!(web(&Seen::off()), None);
    }
}
