//! The priority of RDMA over Ethernet.

use std::collections::BTreeSet;

use super::dcb::{found, is_about, listed};
use crate::facts::{App, Host, Nic};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// RoCE, version 1, by the type of its frames; and version 2, by its port of UDP.
const ROCE_V1: u16 = 0x8915;
const ROCE_V2: u16 = 4791;

/// Selectors of `dcb_app`: the type of a frame, a port of UDP, one of either, the DSCP.
const BY_TYPE: u8 = 1;
const BY_UDP: u8 = 3;
const BY_PORT: u8 = 4;
const BY_DSCP: u8 = 5;

/// Priorities that RoCE has by a table; with a DSCP those of that as well.
pub(super) fn of_roce(apps: &[App], dscp: Option<u16>) -> BTreeSet<u8> {
    let is_roce = |app: &&App| match app.selector {
        BY_TYPE => app.protocol == ROCE_V1,
        BY_UDP | BY_PORT => app.protocol == ROCE_V2,
        BY_DSCP => dscp == Some(app.protocol),
        _ => false,
    };
    apps.iter()
        .filter(is_roce)
        .map(|app| app.priority)
        .collect()
}

/// RDMA has a priority that is held back alone, where one is.
pub fn priority(host: &Host, nic: &Nic) -> Verdict {
    let rdma = nic.rdma.as_ref().and_then(|rdma| rdma.known());
    let Some(rdma) = rdma.filter(|rdma| rdma.kinds.keys().any(|kind| kind.contains("RoCE"))) else {
        return Ok(Answer::NotAbout);
    };
    if !is_about(host, nic) {
        return Ok(Answer::NotAbout);
    }
    let dcb = nic.dcb.get()?;
    let Some(pfc) = dcb.pfc.as_ref().filter(|pfc| !pfc.enabled.is_empty()) else {
        return Ok(Answer::NotAbout);
    };
    let dscp = rdma.default_tos.map(|tos| u16::from(tos >> 2));
    let own = of_roce(&dcb.apps, dscp);
    if own.is_empty() {
        return Err(Because::from(
            "nothing tells which priority RoCE has: no APP is set for it, nor for the DSCP of its default TOS",
        ));
    }
    if own.is_subset(&pfc.enabled) {
        return Ok(Answer::Right);
    }
    let words: Vec<String> = own.iter().map(u8::to_string).collect();
    Ok(Answer::Found(Found {
        severity: Severity::Notice,
        ..found(
            format!(
                "RoCE has priority {}, and PFC is for {}",
                words.join(", "),
                listed(pfc)
            ),
            "one priority for both",
            "what is held back is not RDMA, and RDMA loses packets: adapters send all again that was behind a lost one",
            format!(
                "if RDMA is used: dcb app add dev {0} dgram-port-prio {ROCE_V2}:P, or dcb pfc set dev {0} prio-pfc P:on, and the same at the switch",
                nic.name
            ),
        )
    }))
}
