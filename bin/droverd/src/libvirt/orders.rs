//! What is answered to orders that concern a domain of libvirt's.

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::Domain;
use drover_types::{HostName, VmName};
use uuid::Uuid;

use super::domains::name;
use super::virsh::{Order, Place};
use super::{Libvirt, Seen};
use crate::elsewhere::Elsewhere;

impl Libvirt {
    /// Why an order for the guest of this name or id is not carried out, where no host has it as one of Drover's as far as they said.
    /// None where libvirt has no such domain.
    pub fn refusal(
        &self,
        host: &HostName,
        vm: &VmName,
        order: Order,
        elsewhere: &Elsewhere,
    ) -> Option<Refusal> {
        refusal(&self.seen(), host, vm, order, elsewhere)
    }

    /// How guests of Drover's would be called that may be the domain of this name or id; none where libvirt has no such domain, or
    /// no guest can be called so.
    pub fn called(&self, vm: &VmName) -> Option<VmName> {
        let seen = self.seen();
        find(&seen, vm)?.name.parse().ok()
    }
}

/// Those that it told of.
pub(super) fn told(seen: &Seen) -> impl Iterator<Item = &Domain> {
    seen.domains.iter().flat_map(|domains| &domains.told)
}

/// A domain that somebody named.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    name: &'a str,
    pub uuid: Uuid,
    /// What libvirt told of it, if it did.
    pub(super) told: Option<&'a Domain>,
}

/// The domain of this name, or else of this id.
pub fn find<'a>(seen: &'a Seen, vm: &VmName) -> Option<Found<'a>> {
    let told = told(seen).map(|domain| Found {
        name: &domain.name,
        uuid: domain.uuid,
        told: Some(domain),
    });
    let untold = seen.domains.iter().flat_map(|domains| &domains.untold);
    let untold = untold.map(|domain| Found {
        name: &domain.name,
        uuid: domain.uuid,
        told: None,
    });
    let all: Vec<_> = told.chain(untold).collect();
    let by_name = all.iter().find(|found| found.name == vm.as_str());
    let id = vm.as_str().parse::<Uuid>().ok();
    let by_id = || all.iter().find(|found| Some(found.uuid) == id);
    by_name.or_else(by_id).copied()
}

fn refusal(
    seen: &Seen,
    host: &HostName,
    vm: &VmName,
    order: Order,
    elsewhere: &Elsewhere,
) -> Option<Refusal> {
    let found = find(seen, vm)?;
    let shown = name(found.name);
    let message = format!(
        "guest {shown:?} of {host} is libvirt's: the agent lists its domains and moves them, and does not start, stop or suspend them yet"
    );
    let uri = seen.uri.as_deref();
    let mut next = Place { host, uri }.instead(order, found.name, found.told);
    if order == Order::Start {
        let names = |hosts: &[HostName]| {
            let names: Vec<_> = hosts.iter().map(HostName::as_str).collect();
            (!names.is_empty()).then(|| names.join(", "))
        };
        if let Some(silent) = names(&elsewhere.silent) {
            next.push_str(&format!(
                "; make sure first that it runs nowhere as one of Drover's: silent: {silent}"
            ));
        }
        if let Some(there) = names(&elsewhere.domains) {
            next.push_str(&format!(
                "; a domain of that name or id is in memory on {there}: if it is the same, it is not to be started here"
            ));
        }
    }
    Some(Refusal::new(ErrorCode::OfLibvirt, message).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::seen::tests::{domain, seen};
    use drover_libvirt::DomainState;

    fn host() -> HostName {
        "a".parse().unwrap()
    }

    #[test]
    fn an_order_for_a_domain_is_refused_with_what_does_it_and_others_are_not() {
        let uuid = Uuid::from_u128(0xabc);
        let named = Domain {
            uuid,
            ..domain("it's 1", DomainState::Running)
        };
        let domains = vec![domain("web", DomainState::ShutOff), named];
        let libvirt = Libvirt::at_rest(seen(domains));
        let refused = |name: &str, order| {
            let name = name.parse().unwrap();
            libvirt.refusal(&host(), &name, order, &Elsewhere::default())
        };
        let web = refused("web", Order::Start).unwrap();
        assert_eq!(web.code, ErrorCode::OfLibvirt);
        assert!(web.code.is_preflight());
        assert!(web.next.unwrap().ends_with("on a: `virsh start web`"));
        let id = uuid.to_string();
        for id in [id.to_uppercase(), uuid.simple().to_string(), id] {
            let by_id = refused(&id, Order::Stop).unwrap();
            let next = by_id.next.unwrap();
            assert!(next.ends_with(r"`virsh shutdown 'it'\''s 1'`"), "{next}");
        }
        assert_eq!(refused("db", Order::Start), None);
        let called = |name: &str| libvirt.called(&name.parse().unwrap());
        assert_eq!(called("web"), Some("web".parse().unwrap()));
        assert_eq!(called(&uuid.to_string()), None, "no name of ours");
    }

    #[test]
    fn who_starts_a_domain_is_told_which_hosts_did_not_say_whether_they_have_it() {
        let domains = vec![domain("web", DomainState::ShutOff)];
        let libvirt = Libvirt::at_rest(seen(domains));
        let (web, b): (_, HostName) = ("web".parse().unwrap(), "b".parse().unwrap());
        let told = |order, found: &Elsewhere| {
            let refused = libvirt.refusal(&host(), &web, order, found);
            refused.unwrap().next.unwrap()
        };
        let silent = Elsewhere {
            silent: vec![b.clone()],
            ..Elsewhere::default()
        };
        let next = told(Order::Start, &silent);
        assert!(next.contains("`virsh start web`"), "{next}");
        assert!(next.ends_with("silent: b"), "{next}");
        let there = Elsewhere {
            domains: vec![b],
            ..Elsewhere::default()
        };
        let next = told(Order::Start, &there);
        assert!(next.contains("is in memory on b"), "{next}");
        assert!(!told(Order::Stop, &there).contains("in memory"));
    }
}
