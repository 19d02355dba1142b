//! Guests that are on this host, or on their way from or to it.

use drover_api::Refusal;
use drover_types::in_short;

use crate::agent::Context;
use crate::libvirt::Libvirt;
use crate::migration::Migrations;

/// Says which of the agent's own are in memory here or on their way; nothing where there are none. libvirt's domains are none of
/// its own: they stay when the host leaves its cluster or joins one.
///
/// # Errors
/// The guests of this host cannot be listed.
pub async fn guests(context: &Context, migrations: &Migrations) -> Result<Option<String>, Refusal> {
    let vms = context.registry.list().await?;
    let here = vms.into_iter().filter(|vm| vm.pid.is_some());
    let moving = migrations.under_way().into_iter();
    let names = here
        .map(|vm| vm.name)
        .chain(moving.map(|view| view.vm.to_string()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return Ok(None);
    }
    let (own, count) = (&context.config.host, names.len());
    let names = in_short(names.join(", "));
    Ok(Some(format!(
        "{own} has {count} guests in memory or on their way: {names}"
    )))
}

/// How many guests may use this host's links: the agent's own that have a process, and one more where libvirt has domains in memory, or
/// does not tell.
pub fn on_links(context: &Context) -> usize {
    and_domains(context.registry.running(), &context.libvirt)
}

fn and_domains(own: usize, libvirt: &Libvirt) -> usize {
    own + usize::from(libvirt.present().is_some())
}

#[cfg(test)]
mod tests {
    use drover_libvirt::DomainState;

    use super::*;
    use crate::libvirt::Seen;
    use crate::libvirt::tests::{domain, lost, seen};

    #[test]
    fn domains_in_memory_may_use_links_as_may_those_of_a_libvirt_that_never_told() {
        let with = |own, seen| and_domains(own, &Libvirt::at_rest(seen));
        let has = |state| seen(vec![domain("web", state)]);
        let never_told = Seen {
            contact: lost(),
            ..Seen::looking("qemu:///system")
        };
        assert_eq!(with(0, has(DomainState::Running)), 1);
        assert_eq!(with(2, has(DomainState::Paused)), 3);
        assert_eq!(with(0, never_told), 1);
        assert_eq!(with(0, has(DomainState::ShutOff)), 0);
        assert_eq!(with(2, Seen::off()), 2);
    }
}
