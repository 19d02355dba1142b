//! Links for a person.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use drover_api::MemberLeftOut;
use drover_tune::facts::{Duplex, Fact, Fec, Host, Link, Medium, Module, Nic, Pci, Port};
use drover_tune::{Finding, highest, most};

use crate::doctor::{clean, in_full};
use crate::show::{or_dash, row, table};

/// A line for each, and below them what is the matter.
pub fn list(nics: &[(&Host, &Nic)], findings: &[Finding], left_out: &[MemberLeftOut]) -> String {
    let mut rows = vec![row(&[
        "HOST", "NIC", "STATE", "RATE", "MOST", "PORT", "MODULE", "FEC",
    ])];
    rows.extend(nics.iter().map(|(host, nic)| {
        vec![
            clean(&host.name).to_string(),
            clean(&nic.name).to_string(),
            state(nic).to_owned(),
            or_dash(speed(nic)),
            or_dash(highest(nic)),
            or_dash(nic.port.known().copied().map(port)),
            or_dash(nic.module.known().map(in_brief)),
            or_dash(nic.fec.known().map(correction)),
        ]
    }));
    let mut said = table(&rows);
    if !findings.is_empty() {
        said.push('\n');
    }
    for finding in findings {
        let found = &finding.found;
        let _ = writeln!(
            said,
            "{} of {}: {}; expected: {}",
            found.severity,
            clean(&finding.subject),
            clean(&found.read),
            clean(&found.expected)
        );
    }
    for left in left_out {
        let _ = writeln!(said, "not looked at: {}: {}", left.host, left.why);
    }
    if let Some(first) = findings.first() {
        let nic = first.subject.nic.as_deref().unwrap_or_default();
        let (host, nic) = (clean(&first.subject.host), clean(&nic));
        let _ = writeln!(
            said,
            "`drover nic show {host} {nic}` says more of it, and what to do"
        );
    }
    said
}

fn state(nic: &Nic) -> &'static str {
    match (nic.up, nic.carrier) {
        (true, true) => "up",
        (true, false) => "no carrier",
        (false, _) => "off",
    }
}

fn speed(nic: &Nic) -> Option<drover_types::BitRate> {
    nic.link.known()?.speed.filter(|_| nic.carrier)
}

fn port(port: Port) -> &'static str {
    match port {
        Port::TwistedPair => "twisted pair",
        Port::Fibre => "fibre",
        Port::DirectAttach => "direct attach",
        Port::Nothing => "nothing",
        Port::Other => "other",
    }
}

fn in_brief(module: &Module) -> String {
    let what = match (module.medium, module.complies.as_str()) {
        (Medium::PassiveCopper | Medium::ActiveCable, _) => match module.metres {
            Some(metres) => format!("DAC {metres} m"),
            None => "DAC".to_owned(),
        },
        (_, "") => String::new(),
        (_, complies) => complies.to_owned(),
    };
    clean(&format!("{} {what}", module.form).trim_end()).to_string()
}

fn correction(fec: &Fec) -> String {
    match (&fec.active, fec.configured.is_empty()) {
        (Some(active), _) => clean(active).to_string(),
        (None, true) => "-".to_owned(),
        (None, false) => clean(&words(&fec.configured)).to_string(),
    }
}

/// All of one.
pub fn nic(host: &Host, nic: &Nic, findings: &[Finding]) -> String {
    let mut said = format!("{} of {}\n", clean(&nic.name), clean(&host.name));
    let mut line = |what: &str, text: String| {
        let _ = writeln!(said, "  {what:<12}{}", clean(&text));
    };
    line("state", in_words(nic));
    line("adapter", adapter(nic));
    line("port", told(&nic.port, |of| port(*of).to_owned()));
    line("module", told(&nic.module, in_detail));
    line(
        "most",
        most(nic).unwrap_or_else(|| "its driver tells no rates".to_owned()),
    );
    line(
        "supported",
        told(&nic.link, |link| modes(&link.modes.supported)),
    );
    line(
        "advertised",
        told(&nic.link, |link| modes(&link.modes.advertised)),
    );
    line("peer", told(&nic.link, peer));
    line("correction", told(&nic.fec, chosen));
    if !nic.carrier {
        line(
            "down",
            told(&nic.down, |down| match down {
                Some(down) => match &down.detail {
                    Some(detail) => format!("{}: {detail}", down.state),
                    None => down.state.clone(),
                },
                None => "its driver does not tell why".to_owned(),
            }),
        );
    }
    line("slot", told(&nic.pci, slot));
    for finding in findings {
        let _ = write!(said, "\n{}: {}", clean(&finding.rule), in_full(finding));
    }
    if findings.is_empty() {
        said.push_str("\nnothing was found that costs migrations\n");
    }
    said
}

fn told<T>(fact: &Fact<T>, say: impl Fn(&T) -> String) -> String {
    match fact {
        Fact::Known(value) => say(value),
        Fact::Unknown(why) => format!("not known, because {why}"),
    }
}

/// How its link is, in a line.
pub fn in_words(nic: &Nic) -> String {
    let mut words = vec![state(nic).to_owned()];
    if let Some(link) = nic.link.known() {
        words.extend(speed(nic).map(|rate| rate.to_string()));
        if nic.carrier && speed(nic).is_some() {
            words.extend(link.duplex.map(|duplex| duplex_words(duplex).to_owned()));
        }
        words.push(agreed(link, nic.carrier).to_owned());
    }
    words.push(format!("packets of {} bytes", nic.mtu));
    words.join(", ")
}

fn duplex_words(duplex: Duplex) -> &'static str {
    match duplex {
        Duplex::Full => "full duplex",
        Duplex::Half => "half duplex",
    }
}

fn agreed(link: &Link, carrier: bool) -> &'static str {
    match (link.by_hand, link.negotiates, carrier) {
        (true, ..) => "set by hand",
        (false, Some(true), true) => "negotiated",
        (false, Some(true), false) => "waits for the other end to negotiate",
        (false, Some(false), _) => "not negotiated",
        (false, None, _) => "nothing to negotiate",
    }
}

fn adapter(nic: &Nic) -> String {
    let driver = told(&nic.driver, |driver| format!("driver {driver}"));
    let firmware = told(&nic.firmware, |firmware| format!("firmware {firmware}"));
    let known = [(&nic.driver, driver), (&nic.firmware, firmware)];
    let words: Vec<String> = known
        .into_iter()
        .filter(|(fact, _)| fact.known().is_some())
        .map(|(_, words)| words)
        .chain(nic.model.known().map(|model| format!("PCI {model}")))
        .collect();
    if words.is_empty() {
        return told(&nic.driver, String::clone);
    }
    words.join(", ")
}

fn in_detail(module: &Module) -> String {
    let medium = match module.medium {
        Medium::PassiveCopper => "copper cable without electronics",
        Medium::ActiveCable => "active cable",
        Medium::Fibre => "fibre",
        Medium::TwistedPair => "twisted pair",
        Medium::Unknown => "what it is made of it does not tell",
    };
    let mut words = vec![module.form.clone(), medium.to_owned()];
    words.extend(module.metres.map(|metres| format!("{metres} m")));
    let made = format!("{} {}", module.vendor, module.part);
    let texts = [module.complies.as_str(), made.trim()];
    words.extend(
        texts
            .into_iter()
            .filter(|text| !text.is_empty())
            .map(str::to_owned),
    );
    words.join(", ")
}

fn peer(link: &Link) -> String {
    if link.modes.peer.is_empty() {
        "the other end tells nothing: it does not negotiate, or the driver does not say".to_owned()
    } else {
        modes(&link.modes.peer)
    }
}

fn chosen(fec: &Fec) -> String {
    let active = fec
        .active
        .as_deref()
        .unwrap_or("what is in use is not told");
    let how = if fec.automatic {
        "chosen by the hardware"
    } else {
        "set, or chosen by the driver"
    };
    let from = match fec.configured.is_empty() {
        true => "none".to_owned(),
        false => words(&fec.configured),
    };
    format!("{active}; {how}: {from}")
}

fn slot(pci: &Pci) -> String {
    let lanes = |width: Option<u32>, speed: Option<u32>| match (width, speed) {
        (Some(width), Some(speed)) => {
            format!("{width} lanes of {:.1} GT/s", f64::from(speed) / 1000.0)
        }
        _ => "lanes that it does not tell".to_owned(),
    };
    format!(
        "{}, {} of {}",
        pci.slot,
        lanes(pci.width, pci.speed),
        lanes(pci.width_most, pci.speed_most)
    )
}

/// By their rates, and behind them what is no rate.
fn modes(names: &BTreeSet<String>) -> String {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_by_key(|name| {
        let rate = name.split_once("base").map(|(rate, _)| rate);
        rate.and_then(|rate| rate.parse::<u64>().ok())
            .unwrap_or(u64::MAX)
    });
    if names.is_empty() {
        return "none is told".to_owned();
    }
    names.join(" ")
}

fn words(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(" ")
}
