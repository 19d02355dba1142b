//! QEMU's named models of processors.

use crate::facts::Offer;

/// Those for servers, the newer ones of a maker later (QEMU's `target/i386/cpu.c`); without TSX, which hosts turn off.
const GENERATIONS: [&str; 19] = [
    "qemu64",
    "kvm64",
    "Conroe",
    "Penryn",
    "Nehalem",
    "Westmere",
    "SandyBridge",
    "IvyBridge",
    "Haswell-noTSX",
    "Broadwell-noTSX",
    "Skylake-Server-noTSX-IBRS",
    "Cascadelake-Server-noTSX",
    "Icelake-Server-noTSX",
    "SapphireRapids",
    "GraniteRapids",
    "EPYC",
    "EPYC-Rome",
    "EPYC-Milan",
    "EPYC-Genoa",
];

/// The newest model that runs with all of these.
pub fn newest<'a>(offers: &[&Offer]) -> Option<&'a str> {
    let mut generations = GENERATIONS.iter().rev();
    generations
        .find(|model| offers.iter().all(|offer| offer.models.contains(**model)))
        .copied()
}
