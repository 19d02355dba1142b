//! Codes of SFF-8024: what a module complies with, and the rates that follow.

use std::collections::BTreeSet;

use drover_tune::facts::Medium;
use drover_types::BitRate;

/// A name, and rates in Gbit/s.
type Named = (&'static str, &'static [u64]);

/// What a code stands for: on four lanes, as in a QSFP, and on one, as in an SFP.
pub(super) struct Code {
    pub(super) on_four: Named,
    pub(super) on_one: Named,
    pub(super) medium: Medium,
}

const NOT: Named = ("", &[]);

/// Table 4-4, as far as modules in hosts have them.
pub(super) fn extended(code: u8) -> Option<Code> {
    use Medium::{ActiveCable, Fibre, PassiveCopper, TwistedPair};
    let (on_four, on_one, medium): (Named, Named, Medium) = match code {
        0x01 | 0x18 => (("100G AOC", &[100]), ("25G AOC", &[25]), ActiveCable),
        0x02 => (("100GBASE-SR4", &[100]), ("25GBASE-SR", &[25]), Fibre),
        0x03 => (("100GBASE-LR4", &[100]), ("25GBASE-LR", &[25]), Fibre),
        0x04 => (("100GBASE-ER4", &[100]), ("25GBASE-ER", &[25]), Fibre),
        0x06 => (("100G CWDM4", &[100]), NOT, Fibre),
        0x07 => (("100G PSM4", &[100]), NOT, Fibre),
        0x08 | 0x19 => (("100G ACC", &[100]), ("25G ACC", &[25]), ActiveCable),
        // Copper without electronics carries less as well.
        0x0b => (
            ("100GBASE-CR4", &[40, 50, 100]),
            ("25GBASE-CR CA-25G-L", &[1, 10, 25]),
            PassiveCopper,
        ),
        0x0c => (NOT, ("25GBASE-CR CA-25G-S", &[1, 10, 25]), PassiveCopper),
        0x0d => (NOT, ("25GBASE-CR CA-25G-N", &[1, 10, 25]), PassiveCopper),
        0x10 => (("40GBASE-ER4", &[40]), NOT, Fibre),
        0x12 => (("40G PSM4", &[40]), NOT, Fibre),
        0x16 => (NOT, ("10GBASE-T", &[10]), TwistedPair),
        0x1c => (NOT, ("10GBASE-T short reach", &[10]), TwistedPair),
        0x1d => (NOT, ("5GBASE-T", &[5]), TwistedPair),
        0x40 => (
            ("200GBASE-CR4", &[40, 50, 100, 200]),
            ("50GBASE-CR", &[10, 25, 50]),
            PassiveCopper,
        ),
        0x41 => (("200GBASE-SR4", &[200]), ("50GBASE-SR", &[50]), Fibre),
        _ => return None,
    };
    Some(Code {
        on_four,
        on_one,
        medium,
    })
}

/// Electrical interfaces of a host, table 4-5: name and rate in Gbit/s.
pub(super) fn host_interface(code: u8) -> Option<(&'static str, u64)> {
    Some(match code {
        0x05 => ("25GAUI", 25),
        0x06 => ("XLAUI", 40),
        0x0a => ("50GAUI-1", 50),
        0x0b => ("CAUI-4", 100),
        0x0c => ("100GAUI-4", 100),
        0x0d => ("100GAUI-2", 100),
        0x0e => ("200GAUI-8", 200),
        0x0f => ("200GAUI-4", 200),
        0x11 => ("400GAUI-8", 400),
        0x14..=0x16 => ("25GBASE-CR", 25),
        0x17 => ("40GBASE-CR4", 40),
        0x18 => ("50GBASE-CR", 50),
        0x1a => ("100GBASE-CR4", 100),
        0x1b => ("100GBASE-CR2", 100),
        0x1c => ("200GBASE-CR4", 200),
        0x1d => ("400GBASE-CR8", 400),
        _ => return None,
    })
}

pub(super) fn gbit(rates: &[u64]) -> BTreeSet<BitRate> {
    rates
        .iter()
        .map(|rate| BitRate(rate * 1_000_000_000))
        .collect()
}
