//! The rates that a link can have, by what is at each of its places.

use std::collections::BTreeSet;

use drover_types::BitRate;

use crate::facts::{Link, Module, Nic};

/// The rates that this end, what is in its port and the other end have in common, as far as they tell.
pub fn in_common(link: &Link, module: Option<&Module>) -> BTreeSet<BitRate> {
    let told = |rates: &BTreeSet<BitRate>, rate: &BitRate| rates.is_empty() || rates.contains(rate);
    let carried = |rate: &BitRate| module.is_none_or(|module| told(&module.carries, rate));
    let rates = link.supported.iter().copied();
    rates
        .filter(|rate| told(&link.peer, rate) && carried(rate))
        .collect()
}

/// `1, 10 and 25 Gbit/s`.
pub fn listed(rates: &BTreeSet<BitRate>) -> String {
    let mut words: Vec<String> = rates.iter().map(BitRate::to_string).collect();
    let Some(last) = words.pop() else {
        return "nothing".to_owned();
    };
    if words.is_empty() {
        return last;
    }
    let unit = last.split_once(' ').map_or("", |(_, unit)| unit);
    let without = |word: String| match word.strip_suffix(unit) {
        Some(number) => number.trim_end().to_owned(),
        None => word,
    };
    let words: Vec<String> = words.into_iter().map(without).collect();
    format!("{} and {last}", words.join(", "))
}

/// The highest rate that the link of an interface can have; none where its driver tells no rates, or where there is none in common.
#[must_use]
pub fn highest(nic: &Nic) -> Option<BitRate> {
    in_common(nic.link.known()?, nic.module.known())
        .last()
        .copied()
}

/// The highest rate that the link of an interface can have, and what each place says of it, in a sentence; none where its driver tells
/// no rates.
#[must_use]
pub fn most(nic: &Nic) -> Option<String> {
    let link = nic.link.known().filter(|link| !link.supported.is_empty())?;
    let module = nic.module.known();
    let mut places = vec![format!("this end can {}", listed(&link.supported))];
    if let Some(module) = module.filter(|module| !module.carries.is_empty()) {
        let (form, rates) = (&module.form, listed(&module.carries));
        places.push(format!("its {form} carries {rates}"));
    }
    if !link.peer.is_empty() {
        places.push(format!("the other end offers {}", listed(&link.peer)));
    }
    let most = match in_common(link, module).last() {
        Some(most) => format!("{most} at most"),
        None => "no rate in common".to_owned(),
    };
    Some(format!("{most}: {}", places.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_listed_with_their_unit_once_where_they_have_one() {
        let rates = |mbit: &[u64]| listed(&mbit.iter().map(|n| BitRate(n * 1_000_000)).collect());
        assert_eq!(rates(&[1000, 10_000, 25_000]), "1, 10 and 25 Gbit/s");
        assert_eq!(rates(&[100, 1000, 2500]), "100 Mbit/s, 1 and 2.5 Gbit/s");
        assert_eq!(rates(&[1000]), "1 Gbit/s");
        assert_eq!(rates(&[]), "nothing");
    }
}
