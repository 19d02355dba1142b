//! Which queues packets are handed to (`RSS`): a table of places, each with the number of a queue.

use std::collections::BTreeMap;

use drover_tune::facts::Spread;

use crate::netlink::attributes::{attribute, find};

/// The table (`ETHTOOL_A_RSS_INDIR`), of numbers of 32 bits.
const INDIR: u16 = 4;

/// The table alone: the key beside it is nobody's business.
pub(super) fn kept(answer: &[u8]) -> Vec<u8> {
    find(answer, INDIR).map_or_else(Vec::new, |table| attribute(INDIR, table))
}

pub(crate) fn spread(answer: &[u8]) -> Result<Spread, &'static str> {
    let table = find(answer, INDIR).ok_or("its driver tells no table")?;
    let mut places = BTreeMap::new();
    for queue in table.chunks_exact(4) {
        let queue = u32::from_ne_bytes(queue.try_into().unwrap_or_default());
        *places.entry(queue).or_default() += 1;
    }
    if places.is_empty() {
        return Err("its table is empty");
    }
    Ok(Spread { places })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_told_by_how_many_places_each_queue_has_and_its_key_is_not_kept() {
        let table: Vec<u8> = [0_u32, 1, 0, 3]
            .iter()
            .flat_map(|queue| queue.to_ne_bytes())
            .collect();
        let mut answer = attribute(3, &1_u32.to_ne_bytes());
        answer.extend(attribute(INDIR, &table));
        answer.extend(attribute(5, b"a key of forty bytes"));
        let kept = kept(&answer);
        assert!(!kept.windows(5).any(|bytes| bytes == b"a key"));
        assert_eq!(
            spread(&kept).unwrap().places,
            [(0, 2), (1, 1), (3, 1)].into()
        );
        assert!(spread(&super::kept(&[])).is_err());
        assert!(spread(&attribute(INDIR, &[])).is_err());
    }
}
