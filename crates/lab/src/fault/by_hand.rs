//! Faults in a lab that is up, as a person wants them: from now on, until they are taken back.

use anyhow::{Context, Result, bail};

use super::{Fault, Harm, Moment, NewRate, Side, Which, harm, heal};
use crate::lab::Lab;
use crate::operate::{self, Status};
use crate::settings::LabName;

/// Does a fault to a lab's NICs now. The source is that host, or else the one of the only guest.
///
/// # Errors
/// No such lab is up, it has no such host, or several guests and no host was named; the fault has a time
/// of its own; or what `nft`, `tc` or `ip` say.
pub async fn harm_now(name: &LabName, fault: &Fault, host: Option<&str>) -> Result<()> {
    if fault.at != Moment::Percent(0.0) || fault.lasting.is_some() || fault.harm.every().is_some() {
        bail!(
            "a fault by hand begins now and lasts until `drover lab heal{}`: leave at=, for= and \
             every= away",
            name.option()
        );
    }
    let status = operate::status(name).await?;
    let status = status.with_context(|| operate::none_up(name))?;
    let source = source(&status, host)?;
    let state = Lab::peek(name)?.with_context(|| operate::none_up(name))?;
    harm(&state.lab, source, fault).await
}

/// The number of the host whose NICs are meant.
fn source(status: &Status, host: Option<&str>) -> Result<usize> {
    let lab = &status.lab;
    let names: Vec<_> = status.hosts.iter().map(|host| host.host.as_str()).collect();
    match host.or(status.guest_on.as_deref()) {
        Some(host) => {
            let found = names.iter().position(|name| *name == host);
            found.with_context(|| format!("lab {lab} has no host {host}, but {}", names.join(", ")))
        }
        None if status.guests.len() > 1 => bail!(
            "lab {lab} has several guests: say whose NICs with --host, one of {}",
            names.join(", ")
        ),
        None => Ok(0),
    }
}

/// Makes every NIC of a lab as it was made.
///
/// # Errors
/// No such lab is up, or what `nft`, `tc` or `ip` say; all of it was tried.
pub async fn heal_all(name: &LabName) -> Result<()> {
    let state = Lab::peek(name)?.with_context(|| operate::none_up(name))?;
    let every = None;
    // One of each kind; a name comes first, since the others need it.
    let harms = [
        Harm::Rename,
        Harm::Down {
            from: Side::Source,
            every,
        },
        Harm::Rate(NewRate::Part(1.0)),
        Harm::Large { above: 1500 },
        Harm::Mtu { to: state.lab.mtu },
        Harm::Cut { from: None, every },
    ];
    let faults = harms.map(|harm| Fault {
        harm,
        nics: Which::All,
        at: Moment::Percent(0.0),
        lasting: None,
    });
    heal(&state.lab, &faults).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operate::{GuestStatus, HostStatus};

    fn up(hosts: &[&str], guests: &[(&str, &str)]) -> Status {
        let host = |name: &&str| HostStatus {
            host: (*name).to_owned(),
            namespace: String::new(),
            shell: String::new(),
            addresses: Vec::new(),
            socket: "/sock".into(),
            log: "/log".into(),
            agent: true,
            vms: Vec::new(),
        };
        let guest = |(name, on): &(&str, &str)| GuestStatus {
            name: name.parse().unwrap(),
            on: Some((*on).to_owned()),
            verified_pages: None,
            bad_pages: None,
        };
        let only = guests.first().filter(|_| guests.len() == 1);
        Status {
            lab: "x".parse().unwrap(),
            nics: vec![None],
            mtu: 9000,
            hosts: hosts.iter().map(host).collect(),
            guests: guests.iter().map(guest).collect(),
            guest_on: only.map(|(_, on)| (*on).to_owned()),
            verified_pages: None,
            bad_pages: None,
        }
    }

    #[test]
    fn the_source_is_the_named_host_or_that_of_the_only_guest() {
        let one = up(&["a", "b", "c"], &[("guest", "b")]);
        assert_eq!(source(&one, None).unwrap(), 1);
        assert_eq!(source(&one, Some("c")).unwrap(), 2);
        assert_eq!(source(&up(&["a", "b"], &[]), None).unwrap(), 0);
    }

    #[test]
    fn a_host_that_is_not_there_or_not_said_is_refused_with_those_that_are() {
        let two = up(&["a", "b", "c"], &[("guest1", "a"), ("guest2", "b")]);
        let refused = source(&two, Some("d")).unwrap_err().to_string();
        assert_eq!(refused, "lab x has no host d, but a, b, c");
        let refused = source(&two, None).unwrap_err().to_string();
        assert!(refused.contains("--host, one of a, b, c"), "{refused}");
    }
}
