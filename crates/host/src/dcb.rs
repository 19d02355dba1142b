//! Data centre bridging, as an adapter has it and as the switch told it by LLDP (`include/uapi/linux/dcbnl.h`).
//!
//! ```text
//! dcbmsg 4: family u8, command u8, padding u16      attributes: IFNAME, IEEE nested: ETS, PFC, APP_TABLE, and the same of the PEER
//! ieee_pfc 136: capable u8, enabled u8 (a bit each), 6, requests [u64; 8], indications [u64; 8]
//! ieee_maxrate 64: of each class, in kbit/s [u64; 8]
//! dcb_app 4:    selector u8, priority u8, protocol u16; one each, nested in its table
//! ieee_ets 59:  willing u8, 2, share to send [u8; 8], to receive [u8; 8], algorithm [u8; 8], class of a priority [u8; 8], 24
//! ```

use drover_tune::facts::{App, Dcb, Ets, Pfc};
use rtnetlink::sys::protocols::NETLINK_ROUTE;

use crate::limits::APPS as APPS_MOST;
use crate::netlink::attributes::{attribute, each, find};
use crate::netlink::{Answer, Netlink};

const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const ETS: u16 = 1;
const PFC: u16 = 2;
const APPS: u16 = 3;
const PEER_ETS: u16 = 4;
const PEER_PFC: u16 = 5;
const PEER_APPS: u16 = 6;
const MAXRATE: u16 = 7;
const IEEE_APP: u16 = 1;
const DCB_APP: u16 = 2;

const HEADER: usize = 4;

/// Asks about the interface of that name: the attributes below `IEEE`.
pub(crate) fn ask(netlink: &mut Netlink, nic: &str) -> Answer {
    let mut payload = vec![0, DCB_CMD_IEEE_GET, 0, 0];
    payload.extend(attribute(DCB_ATTR_IFNAME, format!("{nic}\0").as_bytes()));
    let answer = netlink.ask(RTM_GETDCB, &payload)?;
    let attributes = answer.get(HEADER..).unwrap_or_default();
    let found = find(attributes, DCB_ATTR_IEEE);
    found
        .map(<[u8]>::to_vec)
        .ok_or_else(|| "its driver does not tell".to_owned())
}

/// A socket to what tells it.
pub(crate) fn open() -> Option<Netlink> {
    Netlink::open(NETLINK_ROUTE)
}

/// Of what was told.
pub(crate) fn dcb(told: &[u8]) -> Dcb {
    Dcb {
        pfc: find(told, PFC).and_then(pfc),
        ets: find(told, ETS).and_then(ets),
        peer_pfc: find(told, PEER_PFC).and_then(pfc),
        peer_ets: find(told, PEER_ETS).and_then(ets),
        rates: find(told, MAXRATE).and_then(rates),
        apps: apps(told, APPS),
        peer_apps: apps(told, PEER_APPS),
    }
}

/// Others than such entries, as the switch's state of it, have other types.
fn apps(told: &[u8], table: u16) -> Vec<App> {
    let entries = each(find(told, table).unwrap_or_default());
    let entries = entries.filter(|(kind, _)| [IEEE_APP, DCB_APP].contains(kind));
    let app = |(_, entry): (u16, &[u8])| {
        let entry: &[u8; 4] = entry.first_chunk()?;
        Some(App {
            selector: entry[0],
            priority: entry[1],
            protocol: u16::from_ne_bytes([entry[2], entry[3]]),
        })
    };
    entries.filter_map(app).take(APPS_MOST).collect()
}

fn rates(told: &[u8]) -> Option<Vec<u64>> {
    let rates = told.get(..64)?.chunks_exact(8);
    let rates = rates.map(|rate| rate.try_into().map(u64::from_ne_bytes));
    rates.collect::<Result<_, _>>().ok()
}

fn pfc(told: &[u8]) -> Option<Pfc> {
    let enabled = *told.get(1)?;
    let sum = |from: usize| -> Option<u64> {
        let counts = told.get(from..from + 64)?.chunks_exact(8);
        Some(counts.fold(0, |sum: u64, count| {
            sum.saturating_add(u64::from_ne_bytes(count.try_into().unwrap_or_default()))
        }))
    };
    Some(Pfc {
        enabled: (0..8).filter(|bit| enabled & (1 << bit) > 0).collect(),
        sent: sum(8)?,
        received: sum(72)?,
    })
}

fn ets(told: &[u8]) -> Option<Ets> {
    let eight = |from: usize| told.get(from..from + 8).map(<[u8]>::to_vec);
    Some(Ets {
        willing: *told.first()? > 0,
        shares: eight(3)?,
        algorithms: eight(19)?,
        classes: eight(27)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_and_shares_are_told_of_both_ends() {
        let mut own = vec![8, 1 << 3, 0, 0, 0, 0, 0, 0];
        own.extend(
            [2_u64, 0, 0, 5, 0, 0, 0, 0]
                .iter()
                .flat_map(|n| n.to_ne_bytes()),
        );
        own.extend(
            [0_u64, 0, 0, 9, 0, 0, 0, 0]
                .iter()
                .flat_map(|n| n.to_ne_bytes()),
        );
        assert_eq!(own.len(), 136);
        let mut shares = vec![1, 8, 0];
        shares.extend([50, 50, 0, 0, 0, 0, 0, 0]);
        shares.extend([0; 8]);
        shares.extend([2, 2, 0, 0, 0, 0, 0, 0]);
        shares.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        shares.extend([0; 24]);
        assert_eq!(shares.len(), 59);
        let mut peer = own.clone();
        peer[1] = 1 << 4;
        let told = [
            attribute(ETS, &shares),
            attribute(PFC, &own),
            attribute(PEER_PFC, &peer),
        ];
        let told = dcb(&told.concat());
        let pfc = told.pfc.unwrap();
        assert_eq!((pfc.enabled, pfc.sent, pfc.received), ([3].into(), 7, 9));
        assert_eq!(told.peer_pfc.unwrap().enabled, [4].into());
        let ets = told.ets.unwrap();
        assert!(ets.willing);
        assert_eq!(
            (ets.shares[1], ets.algorithms[0], ets.classes[3]),
            (50, 2, 1)
        );
        assert_eq!(told.peer_ets, None);
    }

    #[test]
    fn priorities_by_what_is_in_packets_are_told_of_both_ends() {
        let app = |selector, priority, protocol: u16| {
            let [low, high] = protocol.to_ne_bytes();
            [selector, priority, low, high]
        };
        let own = [
            attribute(IEEE_APP, &app(4, 3, 4791)),
            attribute(DCB_APP, &app(255, 1, 8)),
        ];
        // What it says of itself comes first, and what is cut is none.
        let peer = [
            attribute(0, &[1, 0]),
            attribute(IEEE_APP, &app(5, 3, 26)),
            attribute(IEEE_APP, &[5, 3, 0]),
        ];
        let told = [
            attribute(APPS, &own.concat()),
            attribute(PEER_APPS, &peer.concat()),
        ];
        let told = dcb(&told.concat());
        let of = |apps: &[App]| -> Vec<(u8, u8, u16)> {
            let told = apps.iter();
            told.map(|app| (app.selector, app.priority, app.protocol))
                .collect()
        };
        assert_eq!(of(&told.apps), [(4, 3, 4791), (255, 1, 8)]);
        assert_eq!(of(&told.peer_apps), [(5, 3, 26)]);
        assert_eq!(told.rates, None);
    }

    #[test]
    fn what_classes_may_send_at_most_is_told_of_all_or_of_none() {
        let most = [5_000_000_u64, 0, 0, 0, 0, 0, 0, 1];
        let bytes: Vec<u8> = most.iter().flat_map(|rate| rate.to_ne_bytes()).collect();
        let told = dcb(&attribute(MAXRATE, &bytes)).rates;
        assert_eq!(told.as_deref(), Some(&most[..]));
        assert_eq!(dcb(&attribute(MAXRATE, &bytes[..63])).rates, None);
    }

    #[test]
    fn what_is_cut_is_not_told() {
        for length in 0..136 {
            let told = dcb(&attribute(PFC, &vec![0xff; length]));
            assert_eq!(told.pfc, None, "{length}");
        }
        for length in 0..35 {
            let told = dcb(&attribute(ETS, &vec![0xff; length]));
            assert_eq!(told.ets, None, "{length}");
        }
    }

    #[test]
    fn this_kernel_answers_about_an_interface_without_it_that_it_does_not_tell() {
        let Some(mut netlink) = open() else {
            println!("skipped, because the kernel gives no socket");
            return;
        };
        let why = ask(&mut netlink, "lo").unwrap_err();
        assert!(
            ["its driver does not tell", "the kernel refuses to tell: "]
                .iter()
                .any(|known| why.starts_with(known)),
            "{why}"
        );
    }
}
