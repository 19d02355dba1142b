//! Which interfaces migrations use, and what these carry.

use drover_types::BitRate;

use crate::facts::{Fact, Host, Kind, Layers, Nic};
use crate::finding::Because;

/// As many interfaces stand on each other as the kernel allows (`MAX_NEST_DEV`).
const DEEPEST: usize = 8;

/// An interface that carries packets itself, and that somebody uses: it is up, and has an address that somebody gave it, or is an
/// adapter that carries for an interface with one. Ports that nobody uses may be as they are, and guests' ends are theirs.
pub fn is_used(host: &Host, nic: &Nic) -> bool {
    match nic.kind {
        Kind::Adapter => is_in_use(host, nic),
        Kind::Virtual => nic.up && nic.is_addressed(),
        Kind::Bond | Kind::Bridge | Kind::Vlan => false,
    }
}

/// The same of any interface, whether it carries packets itself or has others do so.
pub fn is_in_use(host: &Host, nic: &Nic) -> bool {
    let carries = || {
        let layers = Layers::of(host);
        let mut upper = host.nics.iter().filter(|upper| upper.is_addressed());
        upper.any(|upper| layers.all_carriers(upper).contains(nic.name.as_str()))
    };
    nic.up && (nic.is_addressed() || carries())
}

/// It is a port of InfiniBand, with IP over it: there are no pause frames, no priorities of Ethernet and no LLDP.
pub fn is_infiniband(nic: &Nic) -> bool {
    let rdma = nic.rdma.as_ref().and_then(Fact::known);
    rdma.is_some_and(|rdma| rdma.layer == "InfiniBand")
}

/// What an interface can carry, by the adapters that carry for it.
pub fn rate(host: &Host, nic: &Nic) -> Result<BitRate, Because> {
    let layers = Layers::of(host);
    let mut nic = nic;
    for _ in 0..DEEPEST {
        match nic.kind {
            Kind::Adapter | Kind::Virtual => return own_rate(nic),
            Kind::Bond => return of_bond(host, nic),
            Kind::Bridge | Kind::Vlan => {}
        }
        nic = match layers.carriers(nic)[..] {
            [only] => only,
            [] => return Err(Because(format!("no adapter is below {}", nic.name))),
            _ => {
                return Err(Because(format!(
                    "{} has several adapters, and does not tell which of them carries",
                    nic.name
                )));
            }
        };
    }
    Err("more interfaces stand on each other than the kernel allows".into())
}

fn own_rate(nic: &Nic) -> Result<BitRate, Because> {
    let rate = nic.link.get()?.speed;
    rate.ok_or_else(|| Because(format!("{} tells no rate", nic.name)))
}

/// Together, or that of the one that carries.
fn of_bond(host: &Host, nic: &Nic) -> Result<BitRate, Because> {
    let bond = nic.bond.as_ref().ok_or("its members are not told")?.get()?;
    let of = |name: &String| {
        let member = host.nic(name);
        own_rate(member.ok_or_else(|| Because(format!("{name} was not read")))?)
    };
    if bond.one_carries() {
        let member = bond.carrying.as_ref();
        return of(member.ok_or("none of its members carries")?);
    }
    let mut rate = 0_u64;
    for member in &bond.active {
        rate = rate.saturating_add(of(member)?.0);
    }
    Ok(BitRate(rate))
}
