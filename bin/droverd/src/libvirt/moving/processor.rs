//! Whether the host that a domain goes to has the processor that was passed to it, as plans compare them: libvirt compares none such.

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::Description;
use drover_plan::inventory::{GuestCpu, HostCpu};
use drover_plan::processor::unsuited;
use drover_types::{HostName, with_sources};

use crate::agent::Context;
use crate::inventory;
use crate::libvirt::domains::name;
use crate::libvirt::preflight::has_hosts_processor;

/// Looks at both hosts, of a domain that has all of this one's processor. What has to be told, where that is not known.
///
/// # Errors
/// The other host has another one, or lacks a feature of this one.
pub async fn look(
    context: &Context,
    there: &HostName,
    called: &str,
    description: &Description,
) -> Result<Option<String>, Refusal> {
    if !has_hosts_processor(description) {
        return Ok(None);
    }
    let (own, other) = tokio::join!(inventory::own_processor(context), of(context, there));
    judged(there, called, own, other)
}

async fn of(context: &Context, there: &HostName) -> Result<HostCpu, String> {
    let client = context.peers.client(there);
    let client = client.map_err(|refusal| refusal.message)?;
    let told = client.inventory().await;
    let told = told.map_err(|error| with_sources(&error))?;
    Ok(told.host.cpu)
}

fn judged(
    there: &HostName,
    called: &str,
    own: Result<HostCpu, String>,
    other: Result<HostCpu, String>,
) -> Result<Option<String>, Refusal> {
    let tells = |cpu: HostCpu, whose: &str| {
        let is_told = cpu.passed().next().is_some();
        is_told.then_some(cpu).ok_or_else(|| {
            format!("no QEMU of `qemu.binaries` {whose} tells what its hardware offers")
        })
    };
    let own = own.and_then(|cpu| tells(cpu, "here"));
    let other = other.and_then(|cpu| tells(cpu, "there"));
    let (here, other) = match (own, other) {
        (Ok(here), Ok(other)) => (here, other),
        (Err(why), _) | (_, Err(why)) => {
            return Ok(Some(format!(
                "whether {there} has the processor that was passed to it (host-passthrough) is not known: {why}"
            )));
        }
    };
    let Some(why) = unsuited(&GuestCpu::Passthrough, &here, &other) else {
        return Ok(None);
    };
    let called = name(called);
    let message = format!(
        "{there} {why}, and domain {called:?} has all of its host's (host-passthrough): it could end there"
    );
    Err(Refusal::new(ErrorCode::HostLacks, message).next(
        "order it to a host with the same processor and features, or give it a model that both have (`virsh hypervisor-cpu-baseline`) \
         and start it anew",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(model: &str, features: &[&str]) -> HostCpu {
        HostCpu {
            model: model.parse().unwrap(),
            features: features.iter().map(|word| word.parse().unwrap()).collect(),
            models: [].into(),
        }
    }

    fn looked(own: HostCpu, other: Result<HostCpu, String>) -> Result<Option<String>, Refusal> {
        judged(&"b".parse().unwrap(), "web", Ok(own), other)
    }

    #[test]
    fn a_domain_with_its_hosts_processor_goes_to_the_same_one_only_and_what_is_not_known_is_told() {
        let here = || cpu("EPYC-7302", &["avx2", "erms"]);
        assert_eq!(looked(here(), Ok(here())), Ok(None));
        let refused = looked(here(), Ok(cpu("EPYC-7302", &["avx2"]))).unwrap_err();
        assert_eq!(refused.code, ErrorCode::HostLacks);
        let words = "b lacks CPU feature erms, and domain \"web\" has all of its host's";
        assert!(refused.message.starts_with(words), "{refused:?}");
        let silent = looked(here(), Ok(cpu("EPYC-7302", &["tcg/avx2"])));
        let note = silent.unwrap().unwrap();
        assert!(
            note.ends_with("there tells what its hardware offers"),
            "{note}"
        );
        let note = looked(here(), Err("it does not answer".to_owned()));
        let note = note.unwrap().unwrap();
        assert!(note.ends_with("not known: it does not answer"), "{note}");
    }
}
