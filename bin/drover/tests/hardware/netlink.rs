//! Answers of the kernel as `Documentation/networking/ethtool-netlink.rst` lays them out, in this machine's byte order.

pub use drover_host::{attribute, bitset};
pub use drover_lab::breaks::told::{number, shown};
use serde_json::{Value, json};

pub fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | 1 << 15, value)
}

/// A set of bits without a mask: only what is set.
pub fn set(kind: u16, names: &[&str]) -> Vec<u8> {
    let bits: Vec<_> = names.iter().map(|name| (*name, true)).collect();
    bitset(kind, false, &bits)
}

/// As `told.json` has an answer.
pub fn told(parts: &[Vec<u8>]) -> Value {
    // Each begins with whose it is.
    let header = nested(1, &number(1, 4));
    shown(&[header, parts.concat()].concat())
}

/// The version of the kernel of these hosts, and of drivers that came with it.
pub const KERNEL: &str = "6.12.48";

/// `struct ethtool_drvinfo`, as a driver of that kernel fills it.
pub fn drvinfo(driver: &str, firmware: &str, slot: &str) -> Value {
    let mut told = vec![0; 196];
    for (which, text) in [driver, KERNEL, firmware, slot].iter().enumerate() {
        let at = 4 + 32 * which;
        told[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    shown(&told)
}

pub fn nothing(why: &str) -> Value {
    json!({ "nothing": why })
}
