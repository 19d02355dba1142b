//! Answers of the kernel as `Documentation/networking/ethtool-netlink.rst` lays them out, in this machine's byte order.

use data_encoding::BASE64;
use serde_json::{Value, json};

pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

pub fn nested(kind: u16, value: &[u8]) -> Vec<u8> {
    attribute(kind | 1 << 15, value)
}

pub fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_ne_bytes())
}

/// A set of bits with a mask, in its long form: each with its number, its name, and whether it is set.
pub fn bits(kind: u16, bits: &[(&str, bool)]) -> Vec<u8> {
    let each = (0..).zip(bits).map(|(index, (name, is_set))| {
        let mut bit = number(1, index);
        bit.extend(attribute(2, format!("{name}\0").as_bytes()));
        if *is_set {
            bit.extend(attribute(3, &[]));
        }
        nested(1, &bit)
    });
    let listed: Vec<u8> = each.flatten().collect();
    let size = u32::try_from(bits.len()).unwrap();
    nested(kind, &[number(2, size), nested(3, &listed)].concat())
}

/// The same without a mask: only what is set.
pub fn set(kind: u16, names: &[&str]) -> Vec<u8> {
    let each = (0..).zip(names).map(|(index, name)| {
        let name = attribute(2, format!("{name}\0").as_bytes());
        nested(1, &[number(1, index), name].concat())
    });
    let listed: Vec<u8> = each.flatten().collect();
    nested(kind, &[attribute(1, &[]), nested(3, &listed)].concat())
}

/// As `told.json` has an answer.
pub fn told(parts: &[Vec<u8>]) -> Value {
    // Each begins with whose it is.
    let header = nested(1, &[number(1, 4)].concat());
    let bytes = [header, parts.concat()].concat();
    json!({ "attributes": BASE64.encode(&bytes) })
}

/// The same, of what does not begin with that.
pub fn bare(parts: &[Vec<u8>]) -> Value {
    json!({ "attributes": BASE64.encode(&parts.concat()) })
}

pub fn nothing(why: &str) -> Value {
    json!({ "nothing": why })
}
