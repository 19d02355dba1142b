//! What carries for both ends of a network, and whether it is alike.

use std::collections::BTreeSet;

use super::{OfTwo, at_ends, each, found};
use crate::change::quoted;
use crate::cost::of_rate;
use crate::facts::{Dcb, Fact, Host, Kind, Layers, Nic, Rdma, Teller};
use crate::finding::{Answer, Because, Found, Severity, Verdict};
use crate::rules::dcb::{is_set, listed, shared};
use crate::rules::dcbx::{Counts, counts};
use crate::rules::layers::policy;
use crate::rules::switches::{called, neighbour};
use crate::rules::used::{is_infiniband, rate};

/// A fact of an adapter, in a word.
type Word = fn(&Nic) -> &Fact<String>;

/// What is to be the same.
const WORDS: [(&str, Word); 2] = [("adapter", |nic| &nic.model), ("driver", |nic| &nic.driver)];

/// What a driver that came with its kernel has for a version: kernels may be others for as long as hosts are updated.
const OF_KERNEL: &str = "the kernel's";

/// The adapters that carry for an interface: itself, or those below a bond, a bridge or a VLAN. The interface where there are none.
fn adapters<'h>(host: &'h Host, nic: &'h Nic) -> Vec<&'h Nic> {
    if nic.kind == Kind::Adapter {
        return vec![nic];
    }
    let below = Layers::of(host).all_carriers(nic).into_iter();
    let below = below.filter_map(|name| host.nic(name));
    let adapters: Vec<&Nic> = below.filter(|nic| nic.kind == Kind::Adapter).collect();
    if adapters.is_empty() {
        vec![nic]
    } else {
        adapters
    }
}

/// The words of all of them, each once.
fn words<'h>(adapters: &[&'h Nic], of: Word) -> Result<BTreeSet<&'h str>, &'h str> {
    let words = adapters.iter().copied().map(|nic| of(nic).get());
    words.map(|word| word.map(String::as_str)).collect()
}

fn both<'h>(
    own: Result<BTreeSet<&'h str>, &'h str>,
    there: Result<BTreeSet<&'h str>, &'h str>,
) -> Result<[BTreeSet<&'h str>; 2], String> {
    Ok([own?, there?])
}

/// Versions of drivers by their own word.
fn drivers<'h>(host: &'h Host, adapters: &[&'h Nic]) -> Result<BTreeSet<&'h str>, &'h str> {
    let kernel = host.setting("kernel.osrelease").ok();
    let all = words(adapters, |nic| &nic.driver_version)?.into_iter();
    let of = |version| match kernel == Some(version) {
        true => OF_KERNEL,
        false => version,
    };
    Ok(all.map(of).collect())
}

/// Versions of firmware by the first way that is told at both ends: another way has other words for the same one.
fn firmware<'h>(own: &[&'h Nic], there: &[&'h Nic]) -> Result<[BTreeSet<&'h str>; 2], String> {
    for teller in Teller::ALL {
        let told = |adapters: &[&'h Nic]| -> Option<BTreeSet<&'h str>> {
            let versions = adapters.iter().map(|nic| nic.versions.get(&teller));
            versions
                .map(|version| version.map(String::as_str))
                .collect()
        };
        if let (Some(own), Some(there)) = (told(own), told(there)) {
            return Ok([own, there]);
        }
    }
    for nic in own.iter().chain(there) {
        nic.firmware.get()?;
    }
    Err(
        "both ends tell it, in no way that is the same, or what read one of them is older"
            .to_owned(),
    )
}

fn joined(words: &BTreeSet<&str>) -> String {
    words.iter().copied().collect::<Vec<_>>().join(" and ")
}

/// Both ends of a network have the same adapter, driver and firmware.
pub fn adapter(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (adapters(host, nic), adapters(other, far));
        let mut differ = Vec::new();
        let mut unknown = None;
        let mut compare = |what: &str, both: Result<[BTreeSet<&str>; 2], String>| match both {
            Ok([own, there]) if own != there => {
                differ.push(format!("{what} {}, and {}", joined(&own), joined(&there)));
            }
            Ok(_) => {}
            Err(why) => unknown = Some(format!("{what}: {why}")),
        };
        for (what, of) in WORDS {
            compare(what, both(words(&own, of), words(&there, of)));
        }
        let drivers = both(drivers(host, &own), drivers(other, &there));
        compare("driver's version", drivers);
        compare("firmware", firmware(&own, &there));
        match unknown {
            Some(why) if differ.is_empty() => Err(Because(why)),
            _ if differ.is_empty() => Ok(Answer::Right),
            _ => Ok(Answer::Found(found(
                Severity::Notice,
                differ.join("; "),
                "what one can the other may not, and each has faults of its own",
                "bring both to one version".into(),
            ))),
        }
    })
}

/// The bonds by which an interface is carried: itself, or those below it.
fn bonds<'h>(host: &'h Host, nic: &'h Nic) -> Vec<&'h Nic> {
    let below = Layers::of(host).all_carriers(nic).into_iter();
    let below = below.filter_map(|name| host.nic(name));
    let bonds = [nic].into_iter().chain(below);
    bonds.filter(|nic| nic.kind == Kind::Bond).collect()
}

/// How they use their members. Teams have words of their own for what bonds do as well.
fn modes(bonds: &[&Nic]) -> Result<BTreeSet<String>, Because> {
    let mode = |nic: &&Nic| -> Result<String, Because> {
        let bond = nic.bond.as_ref().ok_or("its members are not told")?.get()?;
        let mode = match bond.mode.as_str() {
            "activebackup" => "active-backup",
            "roundrobin" => "balance-rr",
            mode => mode,
        };
        Ok(match policy(bond)? {
            Some(hash) => format!("{mode} by {hash}"),
            None => mode.to_owned(),
        })
    };
    bonds.iter().map(mode).collect()
}

/// Bonds at both ends of a network use their members the same way.
pub fn bond(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (bonds(host, nic), bonds(other, far));
        if own.is_empty() || there.is_empty() {
            return Ok(Answer::NotAbout);
        }
        let (own, there) = (modes(&own)?, modes(&there)?);
        if own == there {
            return Ok(Answer::Right);
        }
        let [own, there] = [own, there].map(|modes| Vec::from_iter(modes).join(" and "));
        let rates = rate(host, nic).ok().zip(rate(other, far).ok());
        let rates = rates.filter(|(own, there)| own != there);
        Ok(Answer::Found(Found {
            cost: rates.and_then(|(own, there)| of_rate(own.min(there), own.max(there))),
            ..found(
                Severity::Warning,
                at_ends((host, nic), format_args!("mode {own}"), (other, far), there),
                "packets one way are spread over members otherwise than those the other way: a migration from one host takes other lines, and \
                 another time, than one to it",
                "set both alike, and the ports of their switches; `bond-mode` says which mode carries by all members".into(),
            )
        }))
    })
}

/// It has hardware that bridging is about.
fn is_of_ethernet(nic: &Nic) -> bool {
    nic.kind == Kind::Adapter && !is_infiniband(nic)
}

/// What the adapters tell of it, each word once; none where one of them tells nothing.
fn told<T: Ord>(
    adapters: &[&Nic],
    of: impl Fn(&Dcb) -> Option<T>,
) -> Result<Option<BTreeSet<T>>, Because> {
    let mut all = Vec::new();
    for nic in adapters {
        all.push(of(nic.dcb.get()?));
    }
    Ok(all.into_iter().collect())
}

/// Both ends of a network hold the same priorities back, and share a full line the same way.
pub fn dcb(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (adapters(host, nic), adapters(other, far));
        let mut ends = own.iter().chain(&there);
        if ends.any(|nic| !is_of_ethernet(nic)) {
            return Ok(Answer::NotAbout);
        }
        let priorities = |dcb: &Dcb| Some(listed(dcb.pfc.as_ref()?));
        let shares = |dcb: &Dcb| {
            let shared = shared(dcb.ets.as_ref()?);
            Some(shared.unwrap_or_else(|| "none".to_owned()))
        };
        let pfc = (told(&own, priorities)?, told(&there, priorities)?);
        let ets = (told(&own, shares)?, told(&there, shares)?);
        if (&pfc, &ets) == (&(None, None), &(None, None)) {
            return Err("their drivers tell neither PFC nor shares".into());
        }
        let mut differ = Vec::new();
        let mut unknown = None;
        for (what, ends) in [("PFC", pfc), ("shares", ets)] {
            match ends {
                (Some(own), Some(there)) if own != there => {
                    let joined = |words: BTreeSet<String>| Vec::from_iter(words).join(" and ");
                    let (own, there) = (joined(own), joined(there));
                    let ends = at_ends((host, nic), own, (other, far), there);
                    differ.push(format!("{what}: {ends}"));
                }
                (Some(_), None) | (None, Some(_)) => {
                    unknown = Some(format!("the driver of one end does not tell {what}"));
                }
                _ => {}
            }
        }
        if differ.is_empty() {
            let mut all = own.iter().chain(&there);
            let some_set = all.any(|nic| nic.dcb.known().is_some_and(is_set));
            return match unknown {
                Some(why) => Err(Because(why)),
                None if some_set => Ok(Answer::Right),
                None => Ok(Answer::NotAbout),
            };
        }
        let [own, there] = [own, there].map(|adapters| {
            let names: Vec<&str> = adapters.iter().map(|nic| nic.name.as_str()).collect();
            names.join(" and ")
        });
        Ok(Answer::Found(found(
            Severity::Warning,
            differ.join("; "),
            "what one end holds back, or keeps a share for, the other one drops, or sends at will",
            format!(
                "set both alike, and the switch between them: `dcb pfc show dev DEV` and `dcb ets show dev DEV` tell of {own} here, and of {there} of {}",
                other.name
            ),
        )))
    })
}

/// Whose word counts for adapters of a host; none where one of them does not tell.
fn word(host: &Host, adapters: &[&Nic]) -> Result<Option<BTreeSet<Counts>>, Because> {
    let words = adapters.iter().map(|nic| counts(host, nic));
    let words: Vec<Option<Counts>> = words.collect::<Result<_, Because>>()?;
    Ok(words.into_iter().collect())
}

/// What a switch says counts at both ends of a network, or at none.
pub fn dcbx(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        let (own, there) = (adapters(host, nic), adapters(other, far));
        let all = || own.iter().chain(&there);
        // Where nobody has set anything it is nothing to them.
        let is_set = all().any(|nic| nic.dcb.known().is_some_and(is_set));
        if !is_set || all().any(|nic| !is_of_ethernet(nic)) {
            return Ok(Answer::NotAbout);
        }
        let (Some(own), Some(there)) = (word(host, &own)?, word(other, &there)?) else {
            return Err("the driver of one end does not tell who negotiates".into());
        };
        if own == there {
            return Ok(Answer::Right);
        }
        let [own, there] = [own, there].map(|words| {
            let words: Vec<String> = words.iter().map(Counts::to_string).collect();
            words.join(" and ")
        });
        Ok(Answer::Found(found(
            Severity::Notice,
            format!(
                "{own} counts at {} {}, {there} at {} {}",
                host.name, nic.name, other.name, far.name
            ),
            "what is set by hand counts at one end, and is taken over from the switch at the other: they are alike by chance, and until a switch is changed",
            "leave both to one of them: `dcb dcbx show dev DEV` tells, `dcb dcbx set` or a flag of the driver sets it; lldpad at both ends, or at none, and as willing \
             at both (`lldptool get-tlv -i DEV -V ETS-CFG -c willing`, and `-V PFC`)"
                .into(),
        )))
    })
}

/// The kind of RDMA that every network carries.
const ROUTED: &str = "RoCE v2";

/// The kind of RDMA that programs take.
fn kind(rdma: &Rdma) -> Result<String, Because> {
    let has = |kind: &str| rdma.kinds.keys().any(|own| own.contains(kind));
    let by_default = |kind: &str| rdma.default_kind.as_ref().is_none_or(|own| own == kind);
    Ok(match rdma.layer.as_str() {
        "Ethernet" if has(ROUTED) && by_default(ROUTED) => ROUTED,
        "Ethernet" if has("RoCE") => "RoCE v1",
        "Ethernet" if rdma.kinds.is_empty() => {
            return Err("it tells no address on this interface".into());
        }
        "Ethernet" => "iWARP",
        other => other,
    }
    .to_owned())
}

/// RDMA at both ends of a network is of one kind.
pub fn rdma(host: &Host, other: &Host) -> OfTwo {
    let kinds = |host: &Host, nic: &Nic| -> Result<BTreeSet<String>, Because> {
        let adapters = adapters(host, nic);
        let devices = adapters.iter().filter_map(|nic| nic.rdma.as_ref());
        devices.map(|rdma| kind(rdma.get()?)).collect()
    };
    each(host, other, |nic, far| {
        let (own, there) = (kinds(host, nic)?, kinds(other, far)?);
        if own.is_empty() || there.is_empty() {
            return Ok(Answer::NotAbout);
        }
        if own == there {
            return Ok(services((host, nic), (other, far)));
        }
        let [own, there] = [own, there].map(|kinds| Vec::from_iter(kinds).join(" and "));
        let by_hand = by_default_alone([(host, nic), (other, far)]).unwrap_or_else(|| {
            "see what `rdma-kind` says of both, and what the firmware of their adapters has turned on".into()
        });
        Ok(Answer::Found(found(
            Severity::Notice,
            at_ends((host, nic), own, (other, far), there),
            "an end with one kind does not hear the other: programs fall back to TCP or fail",
            by_hand,
        )))
    })
}

/// What has programs take RoCE v2 where they take another kind by default alone; none where a device has no addresses of that, so that
/// more keeps both ends apart.
fn by_default_alone(both: [(&Host, &Nic); 2]) -> Option<String> {
    let mut commands = Vec::new();
    for (host, nic) in both {
        for rdma in adapters(host, nic)
            .iter()
            .filter_map(|nic| nic.rdma.as_ref())
        {
            let rdma = rdma.known()?;
            if rdma.layer != "Ethernet" || !rdma.kinds.contains_key(ROUTED) {
                return None;
            }
            if kind(rdma).is_ok_and(|kind| kind != ROUTED) {
                commands.push(format!(
                    "on {}, until its next start: {}",
                    host.name,
                    taken_by_default(rdma)
                ));
            }
        }
    }
    (!commands.is_empty()).then(|| commands.join("; "))
}

/// The kernel has a device's folder there once somebody makes it (`Documentation/ABI/testing/configfs-rdma_cm`).
fn taken_by_default(rdma: &Rdma) -> String {
    let folder = format!("/sys/kernel/config/rdma_cm/{}", rdma.device);
    let file = format!("{folder}/ports/{}/default_roce_mode", rdma.port);
    format!(
        "mkdir -p {} && echo '{ROUTED}' > {}",
        quoted(&folder),
        quoted(&file)
    )
}

/// Whether RDMA's packets have one type of service at both ends, as far as that is told.
fn services((host, nic): (&Host, &Nic), (other, far): (&Host, &Nic)) -> Answer {
    let told = |host: &Host, nic: &Nic| -> BTreeSet<String> {
        let adapters = adapters(host, nic).into_iter();
        let devices = adapters.filter_map(|nic| nic.rdma.as_ref()?.known()?.default_tos);
        devices.map(|tos| tos.to_string()).collect()
    };
    let (own, there) = (told(host, nic), told(other, far));
    if own.is_empty() || there.is_empty() || own == there {
        return Answer::Right;
    }
    let [own, there] = [own, there].map(|words| Vec::from_iter(words).join(" and "));
    Answer::Found(found(
        Severity::Notice,
        at_ends(
            (host, nic),
            format_args!("default TOS {own}"),
            (other, far),
            there,
        ),
        "packets of one end have another priority on the way than those of the other: PFC holds one of them back alone",
        "set default_roce_tos of both alike (rdma_cm in configfs, or cma_roce_tos)".into(),
    ))
}

/// The switches that an interface's cables end at, by what they call themselves and what people call them.
#[derive(Default)]
struct Switches<'h> {
    known: BTreeSet<(&'h str, &'h str)>,
    /// Why another one is not known.
    unknown: Option<Because>,
}

impl<'h> Switches<'h> {
    fn of(host: &'h Host, nic: &'h Nic) -> Self {
        let mut switches = Self::default();
        for adapter in adapters(host, nic) {
            match neighbour(host, adapter) {
                Ok(Some(neighbour)) => {
                    let names = (neighbour.switch.as_str(), called(neighbour));
                    switches.known.insert(names);
                }
                Ok(None) => {}
                Err(why) => switches.unknown = Some(why),
            }
        }
        switches
    }

    /// One of them is no switch, but that host.
    fn is_host(&self, host: &Host) -> bool {
        let mut names = self.known.iter();
        names.any(|(_, name)| is_name_of(name, &host.name))
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.known.iter().map(|(_, name)| *name).collect();
        names.join(" and ")
    }
}

/// Whether both are one host's, with its domain or without.
fn is_name_of(one: &str, other: &str) -> bool {
    let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
    let begins = |long: &str, short: &str| {
        let rest = long.strip_prefix(short);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    begins(&one, &other) || begins(&other, &one)
}

/// Both ends of a network are at one switch.
pub fn switch(host: &Host, other: &Host) -> OfTwo {
    each(host, other, |nic, far| {
        at_one_switch((host, nic), (other, far))
    })
}

fn at_one_switch((host, nic): (&Host, &Nic), (other, far): (&Host, &Nic)) -> Verdict {
    let (own, there) = (Switches::of(host, nic), Switches::of(other, far));
    if own.is_host(other) || there.is_host(host) {
        return Ok(Answer::NotAbout);
    }
    let is_there = |(own, _): &(&str, &str)| there.known.iter().any(|(there, _)| there == own);
    if own.known.iter().any(is_there) {
        return Ok(Answer::Right);
    }
    let (own_names, names) = (own.names(), there.names());
    // It may be the one in common.
    if let Some(why) = own.unknown.or(there.unknown) {
        return Err(why);
    }
    if own.known.is_empty() || there.known.is_empty() {
        return Ok(Answer::NotAbout);
    }
    Ok(Answer::Found(Found {
        expected: "one switch for both".into(),
        ..found(
            Severity::Notice,
            format!("it ends at {own_names}, and {} at {names}", far.name),
            "all that crosses takes the line between both switches, which others use as well, and which may be slower than both ends",
            "see that the line between both carries a migration beside all else; or have both ends at one switch, and each other network at another one".into(),
        )
    }))
}
