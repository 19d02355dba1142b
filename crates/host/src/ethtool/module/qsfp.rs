//! QSFP+ and QSFP28 by SFF-8636, and QSFP-DD, OSFP and later ones by CMIS. Offsets are from the second half's beginning.

use std::collections::BTreeSet;

use drover_tune::facts::{Medium, Module};

use super::codes::{extended, gbit, host_interface};
use super::sfp::named;
use super::text;

/// `SFF8024_ID_QSFP_8438`, `SFF8024_ID_QSFP_8436_8636` and `SFF8024_ID_QSFP28_8636`.
pub(super) fn is(id: u8) -> bool {
    matches!(id, 0x0c | 0x0d | 0x11)
}

/// With CMIS: QSFP-DD, OSFP, DSFP, and QSFP with it.
pub(super) fn is_managed(id: u8) -> bool {
    matches!(id, 0x18 | 0x19 | 0x1b | 0x1e)
}

const COMPLIANCE: usize = 131 - 128;
const LENGTH: usize = 146 - 128;
const TECHNOLOGY: usize = 147 - 128;
const EXTENDED: usize = 192 - 128;

/// By SFF-8636.
pub(super) fn module(memory: &[u8]) -> Module {
    let byte = |at: usize| memory.get(at).copied().unwrap_or(0);
    // From ten on, technologies are copper's: the first two are without electronics.
    let by_technology = match byte(TECHNOLOGY) >> 4 {
        0..=9 => Medium::Fibre,
        10 | 11 => Medium::PassiveCopper,
        _ => Medium::ActiveCable,
    };
    let of_40g = [
        (0, "40G active cable"),
        (1, "40GBASE-LR4"),
        (2, "40GBASE-SR4"),
        (3, "40GBASE-CR4"),
        (4, "10GBASE-SR"),
        (5, "10GBASE-LR"),
        (6, "10GBASE-LRM"),
    ];
    let code = extended(byte(EXTENDED)).filter(|code| !code.on_four.0.is_empty());
    let (complies, rates, medium) = match (code, named(byte(COMPLIANCE), &of_40g)) {
        (Some(code), _) => (code.on_four.0.to_owned(), code.on_four.1, code.medium),
        (None, Some(complies)) => {
            let is_40g = byte(COMPLIANCE) & 0x0f > 0;
            let rates: &[u64] = if is_40g { &[40] } else { &[10] };
            let is_cable = byte(COMPLIANCE) & 0b1001 > 0;
            let medium = if is_cable && by_technology == Medium::Fibre {
                Medium::ActiveCable
            } else {
                by_technology
            };
            (complies, rates, medium)
        }
        (None, None) => (String::new(), &[][..], by_technology),
    };
    let is_cable = matches!(medium, Medium::PassiveCopper | Medium::ActiveCable);
    let metres = u32::from(byte(LENGTH));
    Module {
        form: match rates.last() {
            Some(200..) => "QSFP56",
            Some(50..) => "QSFP28",
            Some(_) => "QSFP+",
            None => "QSFP",
        }
        .to_owned(),
        medium,
        complies,
        carries: gbit(rates),
        metres: (is_cable && metres > 0).then_some(metres),
        vendor: text(memory.get(20..36)),
        part: text(memory.get(40..56)),
    }
}

/// Where what it can do is listed in the first half, four bytes each; and how many of them there may be.
const APPLICATIONS: usize = 86;
const APPLICATIONS_MOST: usize = 8;
const MEDIA_TYPE: usize = 85;

/// By CMIS.
pub(super) fn managed(lower: &[u8], upper: &[u8]) -> Module {
    let each = lower.get(APPLICATIONS..).unwrap_or_default().chunks(4);
    let codes = each.take(APPLICATIONS_MOST).filter_map(|of| of.first());
    let known: Vec<(&str, u64)> = codes
        .take_while(|code| **code != 0xff)
        .filter_map(|code| host_interface(*code))
        .collect();
    let names: BTreeSet<&str> = known.iter().map(|(name, _)| *name).collect();
    let rates: Vec<u64> = known.iter().map(|(_, rate)| *rate).collect();
    Module {
        form: match lower.first() {
            Some(0x18) => "QSFP-DD",
            Some(0x19) => "OSFP",
            Some(0x1b) => "DSFP",
            _ => "QSFP with CMIS",
        }
        .to_owned(),
        medium: match lower.get(MEDIA_TYPE) {
            Some(1 | 2) => Medium::Fibre,
            Some(3) => Medium::PassiveCopper,
            Some(4) => Medium::ActiveCable,
            Some(5) => Medium::TwistedPair,
            _ => Medium::Unknown,
        },
        complies: names.into_iter().collect::<Vec<_>>().join(", "),
        carries: gbit(&rates),
        metres: None,
        vendor: text(upper.get(1..17)),
        part: text(upper.get(20..36)),
    }
}
