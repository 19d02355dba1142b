//! Attributes of netlink: `length u16, type u16, value`, padded to 4 bytes; and ethtool's sets of bits in them.
//!
//! ```text
//! set of bits, nested:  1 without a mask   2 size u32   3 bits, nested: of each 1 a bit, nested: 1 number u32, 2 name, 3 it is set
//! ```
//! Without a mask only bits that are set are listed; with one, those that it has.

/// Other attributes are in the value.
pub(crate) const NESTED: u16 = 1 << 15;

const TYPE_MASK: u16 = (1 << 14) - 1;

const BITSET_BITS: u16 = 3;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;
const BITSET_NOMASK: u16 = 1;

/// One attribute, as the kernel writes it.
#[must_use]
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut attribute = Vec::new();
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// The attributes, as far as they are whole.
pub(crate) fn each(mut attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        attributes = attributes
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((kind & TYPE_MASK, value))
    })
}

/// The value of the first attribute of this type.
pub(crate) fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    let found = each(attributes).find(|(kind, _)| *kind == wanted);
    found.map(|(_, value)| value)
}

pub(crate) fn u32_of(attributes: &[u8], kind: u16) -> Option<u32> {
    let value = find(attributes, kind)?;
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

pub(crate) fn u8_of(attributes: &[u8], kind: u16) -> Option<u8> {
    find(attributes, kind)?.first().copied()
}

pub(crate) fn u64_of(attributes: &[u8], kind: u16) -> Option<u64> {
    let value = find(attributes, kind)?;
    Some(u64::from_ne_bytes(value.try_into().ok()?))
}

/// Text, up to its zero.
pub(crate) fn text_of(attributes: &[u8], kind: u16) -> Option<String> {
    let text = find(attributes, kind)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// Names of a set's bits, and whether each is set.
pub(crate) fn bits(attributes: &[u8], kind: u16) -> Vec<(String, bool)> {
    let Some(set) = find(attributes, kind) else {
        return Vec::new();
    };
    let all_are_set = find(set, BITSET_NOMASK).is_some();
    let listed = find(set, BITSET_BITS).unwrap_or_default();
    let named = each(listed).filter_map(|(_, bit)| {
        let is_set = all_are_set || find(bit, BIT_VALUE).is_some();
        Some((text_of(bit, BIT_NAME)?, is_set))
    });
    named.collect()
}

/// A set of bits as the kernel tells and takes it: with a mask, those that are not set are told as well.
#[must_use]
pub fn bitset(kind: u16, mask: bool, bits: &[(&str, bool)]) -> Vec<u8> {
    let mut listed = Vec::new();
    for (name, is_set) in bits {
        let mut bit = attribute(BIT_NAME, format!("{name}\0").as_bytes());
        if *is_set && mask {
            bit.extend(attribute(BIT_VALUE, &[]));
        }
        listed.extend(attribute(1 | NESTED, &bit));
    }
    let mut set = Vec::new();
    if !mask {
        set.extend(attribute(BITSET_NOMASK, &[]));
    }
    set.extend(attribute(BITSET_BITS | NESTED, &listed));
    attribute(kind | NESTED, &set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_found_behind_others_of_any_length() {
        let mut attributes = attribute(9, b"odd");
        attributes.extend(attribute(5, &10_000_u32.to_ne_bytes()));
        attributes.extend(attribute(6, &[1]));
        assert_eq!(u32_of(&attributes, 5), Some(10_000));
        assert_eq!(u8_of(&attributes, 6), Some(1));
        assert_eq!(find(&attributes, 77), None);
    }

    #[test]
    fn lying_lengths_end_the_search() {
        for lie in [0_u16, 1, 3, 9, u16::MAX] {
            let mut attributes = attribute(9, b"1234");
            attributes[..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(find(&attributes, 5), None, "length {lie}");
        }
    }

    #[test]
    fn bits_are_set_by_themselves_or_all_of_them_where_there_is_no_mask() {
        let set = bitset(3, true, &[("a", true), ("b", false)]);
        assert_eq!(
            bits(&set, 3),
            [("a".to_owned(), true), ("b".to_owned(), false)]
        );
        let set = bitset(3, false, &[("a", true)]);
        assert_eq!(bits(&set, 3), [("a".to_owned(), true)]);
        assert_eq!(bits(&set, 4), []);
        for cut in 0..set.len() {
            let _ = bits(&set[..cut], 3);
        }
    }
}
