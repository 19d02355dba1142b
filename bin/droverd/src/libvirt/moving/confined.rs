//! Whether a hypervisor that is confined may use the socket that a domain's memory passes through, before libvirt is asked.

use std::path::Path;

use drover_api::{ErrorCode, Refusal};
use drover_libvirt::{Connection, confining};
use drover_types::with_sources;

use super::places;
use crate::agent::Context;
use crate::libvirt::name;

/// Says `1` where SELinux forbids, and not only tells.
const SELINUX_ENFORCES: &str = "/sys/fs/selinux/enforce";

/// What a host's kernel makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kernel {
    selinux_enforces: bool,
}

impl Kernel {
    /// This one. Where it does not tell SELinux is believed to forbid.
    fn of_this_host() -> Self {
        let told = std::fs::read_to_string(Path::new(SELINUX_ENFORCES));
        let selinux_enforces = told.map_or(true, |told| told.trim() != "0");
        Self { selinux_enforces }
    }
}

/// Whether a domain that is confined by these may move, from or to this host.
///
/// # Errors
/// It may not, and what to do.
pub fn look(context: &Context, called: &str, models: &[String]) -> Result<(), Refusal> {
    let kernel = Kernel::of_this_host();
    let Some(why) = models
        .iter()
        .find_map(|model| obstacle(model, called, kernel))
    else {
        return Ok(());
    };
    let (shown, host) = (name(called), &context.config.host);
    let message = format!("domain {shown:?} cannot move over the agent of {host}: {why}");
    let refusal = Refusal::new(ErrorCode::OfLibvirt, message);
    Err(refusal.next("libvirt's own `virsh migrate` moves it, over one network address"))
}

/// What confines hypervisors on this host.
///
/// # Errors
/// libvirt does not tell.
pub async fn models(context: &Context, connection: &Connection) -> Result<Vec<String>, Refusal> {
    let unknown = |why: String| {
        let host = &context.config.host;
        let message = format!("what confines hypervisors on {host} is not known: {why}");
        Refusal::new(ErrorCode::LibvirtNotKnown, message)
    };
    let told = connection.capabilities().await;
    let told = told.map_err(|error| unknown(with_sources(&error)))?;
    confining(&told).map_err(|error| unknown(error.to_string()))
}

/// Whether a domain may come that would be confined by these.
///
/// # Errors
/// It may not.
pub fn look_here(context: &Context, called: &str, models: &[String]) -> Result<(), Refusal> {
    look(context, called, models).map_err(|refusal| Refusal {
        code: ErrorCode::HostLacks,
        ..refusal
    })
}

/// Why a hypervisor that this confines could not use the socket; none where it can.
///
/// AppArmor's profile of a domain has sockets below `/run/libvirt` whose names end with the domain's (`virt-aa-helper.c`, of 9.0.0 and
/// 11.3.0). On the source libvirt lets it use the socket by itself (`qemuSecurityDomainSetPathLabel`).
fn obstacle(model: &str, called: &str, kernel: Kernel) -> Option<String> {
    match model {
        "apparmor" if places::is_named(called) => None,
        "apparmor" => Some(format!(
            "AppArmor lets its QEMU use a socket whose name ends with the domain's, and with {} bytes that is too long for a socket: {} at \
             most",
            called.len(),
            places::NAME_BYTES
        )),
        "selinux" if !kernel.selinux_enforces => None,
        other => Some(format!(
            "its QEMU is confined by {other}, which does not let it use a socket of the agent's"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_keep_a_hypervisor_from_its_socket_is_told_before() {
        let why = |model, called: &str, selinux_enforces| {
            obstacle(model, called, Kernel { selinux_enforces })
        };
        assert_eq!(why("apparmor", "Käfer 1", true), None);
        let long = "x".repeat(places::NAME_BYTES + 1);
        let told = why("apparmor", &long, true).unwrap();
        assert!(told.contains("too long"), "{told}");
        assert_eq!(why("selinux", "web", false), None);
        assert!(why("selinux", "web", true).unwrap().contains("selinux"));
        assert!(why("smack", "web", false).is_some());
    }
}
