//! What is answered to orders that concern a domain of libvirt's.

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::Domain;
use drover_types::{HostName, VmName};

use super::domains::{is_in_memory, name};
use super::{Libvirt, Seen};

impl Libvirt {
    /// Why an order for the guest of this name or id is not carried out. None where libvirt has no such domain.
    pub fn refusal(&self, host: &HostName, vm: &VmName) -> Option<Refusal> {
        refusal(&self.seen(), host, vm)
    }

    /// Whether no domain of this name is in memory here, which may be the same guest as the one that is to run.
    ///
    /// # Errors
    /// One is.
    pub fn leaves_room_for(&self, host: &HostName, vm: &VmName) -> Result<(), Refusal> {
        leaves_room_for(&self.seen(), host, vm)
    }

    /// The names of its domains that are in memory, or were when it told of them last.
    pub fn in_memory(&self) -> Vec<String> {
        let seen = self.seen();
        let told = told(&seen).filter(|domain| is_in_memory(domain.state));
        told.map(|domain| name(&domain.name)).collect()
    }
}

fn told(seen: &Seen) -> impl Iterator<Item = &Domain> {
    seen.domains.iter().flat_map(|domains| &domains.told)
}

fn refusal(seen: &Seen, host: &HostName, vm: &VmName) -> Option<Refusal> {
    let untold = seen.domains.iter().flat_map(|domains| &domains.untold);
    let untold = untold.map(|domain| (&domain.name, domain.uuid));
    let mut all = told(seen)
        .map(|domain| (&domain.name, domain.uuid))
        .chain(untold);
    let (found, _) =
        all.find(|(name, uuid)| *name == vm.as_str() || uuid.to_string() == vm.as_str())?;
    let (shown, argument) = (name(found), quoted(&name(found)));
    let message = format!(
        "guest {shown:?} of {host} is libvirt's: the agent lists its domains, and does not start, stop, suspend or move them yet"
    );
    let next = format!(
        "libvirt's own command does, on {host}: `virsh start {argument}`, `virsh shutdown {argument}`, `virsh managedsave {argument}`, \
         `virsh migrate --live {argument} DESTINATION-URI`"
    );
    Some(Refusal::new(ErrorCode::OfLibvirt, message).next(next))
}

fn leaves_room_for(seen: &Seen, host: &HostName, vm: &VmName) -> Result<(), Refusal> {
    let in_the_way = |domain: &Domain| domain.name == vm.as_str() && is_in_memory(domain.state);
    if !told(seen).any(in_the_way) {
        return Ok(());
    }
    let message = format!(
        "libvirt has a domain {vm} in memory on {host}: if that is the same guest, both would write to its disks"
    );
    Err(Refusal::new(ErrorCode::OfLibvirt, message).next(format!(
        "on {host}, end that one with `virsh shutdown {vm}`, or give one of the two another name"
    )))
}

/// As a shell's argument.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match !name.is_empty() && name.chars().all(is_plain) {
        true => name.to_owned(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
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
        let domains = vec![
            domain("web", DomainState::ShutOff),
            domain("it's 1", DomainState::Running),
        ];
        let uuid = domains[1].uuid;
        let libvirt = Libvirt::at_rest(seen(domains));
        let refused = |name: &str| libvirt.refusal(&host(), &name.parse().unwrap());
        let web = refused("web").unwrap();
        assert_eq!(web.code, ErrorCode::OfLibvirt);
        assert!(web.code.is_preflight());
        assert!(web.next.unwrap().contains("`virsh start web`"));
        let by_id = refused(&uuid.to_string()).unwrap();
        let next = by_id.next.unwrap();
        assert!(next.contains(r"`virsh shutdown 'it'\''s 1'`"), "{next}");
        assert_eq!(refused("db"), None);
        assert_eq!(libvirt.in_memory(), ["it's 1"]);
    }

    #[test]
    fn a_guest_does_not_run_beside_a_domain_of_its_name_that_is_in_memory() {
        let domains = vec![
            domain("web", DomainState::Paused),
            domain("off", DomainState::ShutOff),
        ];
        let libvirt = Libvirt::at_rest(seen(domains));
        let room = |name: &str| libvirt.leaves_room_for(&host(), &name.parse().unwrap());
        assert_eq!(room("web").unwrap_err().code, ErrorCode::OfLibvirt);
        room("off").unwrap();
        room("db").unwrap();
        let none = Libvirt::at_rest(Seen::off());
        none.leaves_room_for(&host(), &"web".parse().unwrap())
            .unwrap();
    }
}
