//! What libvirt has of a guest that another host asks for.

use drover_api::DomainHeld;
use drover_types::VmName;

use super::domains::is_in_memory;
use super::orders::find;
use super::{Contact, Libvirt, Seen};

impl Libvirt {
    /// What it has of this name or id; none where it is not looked at.
    pub fn holds(&self, vm: &VmName) -> Option<DomainHeld> {
        holds(&self.seen(), vm)
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
