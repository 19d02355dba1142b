//! Guests that another host of the cluster has: what an operator wants of one here is asked there.
//!
//! Only what the others say. A host that does not answer may have the guest; nothing fences it.

use drover_api::{ErrorCode, Refusal, StartRequest, VmView};
use drover_types::{HostName, VmName};

use crate::agent::Context;
use crate::libvirt::{Libvirt, Order, Own, Vacancy};

/// What the other hosts say of a guest.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// They have a process of it.
    pub on: Vec<HostName>,
    /// They have a saved state of it, from which it would go on.
    pub suspended: Vec<HostName>,
    /// Their libvirt has a domain of that name or id in memory.
    pub domains: Vec<HostName>,
    /// Whether their libvirt has one is not known there.
    pub untold: Vec<HostName>,
    /// They did not say.
    pub silent: Vec<HostName>,
}

impl Elsewhere {
    /// A host that has a process or a saved state of it.
    pub fn anywhere(&self) -> Option<&HostName> {
        self.on.iter().chain(&self.suspended).next()
    }
}

/// What is not known of a guest that is to be started here.
#[derive(Debug, Default)]
struct Unsaid {
    /// Hosts that did not say whether they have it.
    silent: Vec<HostName>,
    /// Why it is not known whether libvirt has it here.
    of_libvirt: Option<Refusal>,
}

impl Unsaid {
    /// For a person, who may know better.
    fn notes(&self, name: &VmName) -> Vec<String> {
        let silent = self.silent.iter().map(|host| {
            format!(
                "{host} did not say whether it has guest {name} as well: make sure that it has not"
            )
        });
        let of_libvirt = self.of_libvirt.iter().map(|why| {
            let why = &why.message;
            format!("{why}; make sure that it has not")
        });
        silent.chain(of_libvirt).collect()
    }
}

/// Starts a guest here, unless another host says that it has a process of it, or libvirt here has it in memory.
///
/// # Errors
/// As [`crate::registry::Registry::start`], or one has.
pub async fn start(
    context: &Context,
    name: &VmName,
    request: StartRequest,
) -> Result<VmView, Refusal> {
    let unsaid = nowhere_unless(context, name, |_| None).await?;
    let view = context.registry.start(name, request).await?;
    Ok(VmView {
        notes: unsaid.notes(name),
        ..view
    })
}

/// Whether a guest may be started here for a run: only if every other host says that it has no process of it, and libvirt here is
/// known to have none. A person can know better; a run cannot.
///
/// # Errors
/// As [`start`], or hosts are silent, or it is not known which there are, or what libvirt has.
pub async fn surely_nowhere(context: &Context, name: &VmName) -> Result<(), Refusal> {
    let own = &context.config.host;
    let silent = |hosts: &[HostName]| {
        let names: Vec<&str> = hosts.iter().map(HostName::as_str).collect();
        let names = names.join(", ");
        let message = format!(
            "not every host said whether it has guest {name}, which would run twice then; silent: {names}"
        );
        let next = format!(
            "start droverd there and resume {own} again, or make sure that it runs nowhere and start it with \
             `drover vm start {name}` on {own}"
        );
        let refusal = Refusal::new(ErrorCode::PeerUnreachable, message);
        (!hosts.is_empty()).then(|| refusal.next(next))
    };
    context.peers.are_known()?;
    let speaks_against = |unsaid: &Unsaid| {
        let of_libvirt = unsaid.of_libvirt.clone();
        of_libvirt.or_else(|| silent(&unsaid.silent))
    };
    nowhere_unless(context, name, speaks_against).await?;
    Ok(())
}

/// What libvirt's domains here leave of a place for a guest of this agent's.
pub fn vacancy(context: &Context, name: &VmName) -> Vacancy {
    let guest = match context.registry.as_defined(name) {
        Some(definition) => Own::from(&definition),
        None => Own::named(name),
    };
    context.libvirt.vacancy_for(&context.config.host, &guest)
}

/// Asks the other hosts and libvirt for a guest that is to be started here, unless what is not known speaks against it; and what
/// that is.
async fn nowhere_unless(
    context: &Context,
    name: &VmName,
    speaks_against: impl FnOnce(&Unsaid) -> Option<Refusal>,
) -> Result<Unsaid, Refusal> {
    let held = context.registry.held(name);
    if !held.definition || held.process {
        return Ok(Unsaid::default());
    }
    // What is refused here needs nobody else's word.
    context.cordon.check()?;
    context.libvirt.looked_at().await;
    vacancy(context, name).unless_taken()?;
    let elsewhere = context.peers.ask_for(name).await;
    not_there(&context.config.host, name, &elsewhere)?;
    // Either may have been so only since the others were asked.
    context.cordon.check()?;
    let unsaid = Unsaid {
        silent: elsewhere.silent,
        of_libvirt: vacancy(context, name).unless_taken()?,
    };
    match speaks_against(&unsaid) {
        Some(refusal) => Err(refusal),
        None => Ok(unsaid),
    }
}

/// Whether no other host says that it has a guest.
fn not_there(own: &HostName, name: &VmName, elsewhere: &Elsewhere) -> Result<(), Refusal> {
    if let Some(host) = elsewhere.on.first() {
        let message = format!(
            "{host} has a process of guest {name}: started on {own} as well, it would run twice \
             and destroy its disks"
        );
        return Err(Refusal::new(ErrorCode::VmElsewhere, message).next(format!(
            "`drover vm show {name}` on {host} tells what it is; one that runs there is moved with \
             `drover migrate {name} --to {own}`"
        )));
    }
    if let Some(host) = elsewhere.suspended.first() {
        let message = format!(
            "guest {name} is suspended on {host}: once it had run here, it would go on there with disks that are \
             others than in its memory"
        );
        return Err(Refusal::new(ErrorCode::VmElsewhere, message).next(format!(
            "on {host}, `drover vm start {name}` has it go on; with --discard-saved-state it boots"
        )));
    }
    Ok(())
}

/// A guest that is not the agent's: where that is, if another host says so; or else, where this was ordered of it, that it is libvirt's
/// here. Both are asked: a domain here may be a guest that runs there.
pub async fn or_where<T>(
    context: &Context,
    name: &VmName,
    order: Option<Order>,
    result: Result<T, Refusal>,
) -> Result<T, Refusal> {
    let refusal = match result {
        Err(refusal) if refusal.code == ErrorCode::NoSuchVm => refusal,
        other => return other,
    };
    let (own, libvirt) = (&context.config.host, &context.libvirt);
    let called = libvirt.called(name);
    let found = context.peers.ask_for(called.as_ref().unwrap_or(name));
    let asked = (name, order);
    Err(whose(libvirt, own, asked, &found.await, refusal))
}

fn whose(
    libvirt: &Libvirt,
    own: &HostName,
    (name, order): (&VmName, Option<Order>),
    found: &Elsewhere,
    refusal: Refusal,
) -> Refusal {
    if let Some(there) = found.anywhere() {
        let on = format!("it is on {there}: give orders for it there");
        return refusal.next(match libvirt.called(name) {
            None => on,
            Some(called) if called == *name => format!(
                "{on}; libvirt of {own} has a domain of its name, too: if that is the same guest, it is not to be started"
            ),
            Some(called) => format!(
                "libvirt of {own} has this domain as {called}, and {there} has a guest {called}: if that is the same guest, give orders \
                 for it there, and this one is not to be started"
            ),
        });
    }
    let of_libvirt = order.and_then(|order| libvirt.refusal(own, name, order, found));
    of_libvirt.unwrap_or(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libvirt::tests::{domain, seen};
    use drover_libvirt::DomainState;
    use uuid::Uuid;

    /// What is answered to who wants it started where libvirt has a domain `web`, whose id is 3.
    fn whose_is(name: &str, found: &Elsewhere) -> Refusal {
        let domains = vec![domain("web", DomainState::ShutOff)];
        let libvirt = Libvirt::at_rest(seen(domains));
        let (own, name) = ("a".parse().unwrap(), name.parse().unwrap());
        let refusal = Refusal::new(ErrorCode::NoSuchVm, "a has no such guest");
        whose(&libvirt, &own, (&name, Some(Order::Start)), found, refusal)
    }

    #[test]
    fn a_domain_is_not_to_be_started_that_another_host_has_as_a_guest() {
        let host: HostName = "b".parse().unwrap();
        let runs = Elsewhere {
            on: vec![host.clone()],
            ..Elsewhere::default()
        };
        let suspended = Elsewhere {
            suspended: vec![host],
            ..Elsewhere::default()
        };
        for found in [runs, suspended] {
            let refused = whose_is("web", &found);
            assert_eq!(refused.code, ErrorCode::NoSuchVm);
            let next = refused.next.unwrap();
            assert!(next.contains("it is on b"), "{next}");
            assert!(next.contains("not to be started"), "{next}");
            assert!(!next.contains("virsh"), "{next}");
            // By its id it is one of another name.
            let by_id = whose_is(&Uuid::from_u128(3).to_string(), &found);
            let next = by_id.next.unwrap();
            assert!(next.contains("b has a guest web"), "{next}");
            assert!(!next.contains("virsh"), "{next}");
            let next = whose_is("db", &found).next.unwrap();
            assert_eq!(next, "it is on b: give orders for it there");
        }
    }

    #[test]
    fn what_is_not_known_of_a_guest_that_was_started_is_noted() {
        let why = Refusal::new(ErrorCode::LibvirtNotKnown, "libvirt is not reached");
        let unsaid = Unsaid {
            silent: vec!["b".parse().unwrap()],
            of_libvirt: Some(why),
        };
        let notes = unsaid.notes(&"web".parse().unwrap());
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("b did not say"), "{notes:?}");
        assert!(notes[1].starts_with("libvirt is not"), "{notes:?}");
        assert!(Unsaid::default().notes(&"web".parse().unwrap()).is_empty());
    }

    #[test]
    fn a_domain_that_no_other_host_has_as_a_guest_is_libvirts() {
        let refused = whose_is("web", &Elsewhere::default());
        assert_eq!(refused.code, ErrorCode::OfLibvirt);
        assert!(refused.next.unwrap().contains("`virsh start web`"));
        let refused = whose_is("db", &Elsewhere::default());
        assert_eq!((refused.code, refused.next), (ErrorCode::NoSuchVm, None));
    }
}
