//! SFP, SFP+ and SFP28: SFF-8472, whose fields `include/linux/sfp.h` names.

use drover_tune::facts::{Medium, Module};

use super::codes::{Code, extended, gbit};
use super::text;

/// `SFF8024_ID_SFP` and `SFF8024_ID_DWDM_SFP`.
pub(super) fn is(id: u8) -> bool {
    matches!(id, 0x03 | 0x0b)
}

/// From this rate on, in units of 100 MBd, a cable is for 25 Gbit/s, or for 10 Gbit/s.
const RATE_25G: u32 = 250;
const RATE_10G: u32 = 100;

const COPPER_PASSIVE: u8 = 1 << 2;
const COPPER_ACTIVE: u8 = 1 << 3;

/// Of the first 68 bytes, as far as they are there.
pub(super) fn module(memory: &[u8]) -> Module {
    let byte = |at: usize| memory.get(at).copied().unwrap_or(0);
    let (complies, rates, medium) = what(memory);
    let is_cable = matches!(medium, Medium::PassiveCopper | Medium::ActiveCable);
    let metres = u32::from(byte(18));
    Module {
        form: match rates.last() {
            Some(25..) => "SFP28",
            Some(5..) => "SFP+",
            _ => "SFP",
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

fn what(memory: &[u8]) -> (String, &'static [u64], Medium) {
    let byte = |at: usize| memory.get(at).copied().unwrap_or(0);
    if let Some(Code {
        on_one: (complies, rates),
        medium,
        ..
    }) = extended(byte(36)).filter(|code| !code.on_one.0.is_empty())
    {
        return (complies.to_owned(), rates, medium);
    }
    // In units of 100 MBd; 255 of them stand for more, which another byte has in units of 250.
    let rate = match byte(12) {
        255 => u32::from(byte(66)) * 5 / 2,
        rate => u32::from(rate),
    };
    let cable: &[u64] = match rate {
        RATE_25G.. => &[1, 10, 25],
        RATE_10G.. => &[1, 10],
        _ => &[1],
    };
    match (byte(8) & COPPER_PASSIVE > 0, byte(8) & COPPER_ACTIVE > 0) {
        (true, _) => return ("direct attach".to_owned(), cable, Medium::PassiveCopper),
        (_, true) => return ("direct attach".to_owned(), cable, Medium::ActiveCable),
        _ => {}
    }
    let of_10g = [
        (4, "10GBASE-SR"),
        (5, "10GBASE-LR"),
        (6, "10GBASE-LRM"),
        (7, "10GBASE-ER"),
    ];
    if let Some(complies) = named(byte(3), &of_10g) {
        return (complies, &[10], Medium::Fibre);
    }
    if let Some(complies) = named(byte(6), &[(3, "1000BASE-T")]) {
        return (complies, &[1], Medium::TwistedPair);
    }
    let of_1g = [(0, "1000BASE-SX"), (1, "1000BASE-LX"), (2, "1000BASE-CX")];
    match named(byte(6), &of_1g) {
        Some(complies) => (complies, &[1], Medium::Fibre),
        None => (String::new(), &[], Medium::Unknown),
    }
}

/// The names of bits that are set.
pub(super) fn named(bits: u8, names: &[(u8, &str)]) -> Option<String> {
    let set = names.iter().filter(|(bit, _)| bits & (1 << bit) > 0);
    let names: Vec<&str> = set.map(|(_, name)| *name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
