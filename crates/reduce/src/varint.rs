//! Numbers in as few bytes as they need: seven bits in each, the lowest first, the highest bit says that more follow.

/// Bytes of the longest.
const BYTES_MOST: usize = 5;

pub fn put(number: u32, to: &mut Vec<u8>) {
    let mut left = number;
    while left >= 0x80 {
        to.push(left as u8 | 0x80);
        left >>= 7;
    }
    to.push(left as u8);
}

/// The number that `bytes` begin with, which are moved behind it; none where they do not begin with one.
pub fn take(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0_u64;
    for at in 0..BYTES_MOST {
        let byte = *bytes.get(at)?;
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            let number = u32::try_from(number).ok()?;
            *bytes = bytes.get(at + 1..)?;
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(number: u32, after: [u8; 2]) {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            prop_assert!(bytes.len() <= BYTES_MOST);
            bytes.extend(after);
            let mut rest = &bytes[..];
            prop_assert_eq!(take(&mut rest), Some(number));
            prop_assert_eq!(rest, &after);
        }

        #[test]
        fn any_bytes_are_a_number_or_none(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            let taken = take(&mut rest);
            prop_assert_eq!(taken.is_some(), rest.len() < bytes.len());
        }
    }
}
