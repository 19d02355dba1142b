//! Connections that are being greeted: how many there may be, and who makes room for whom.
//!
//! A stranger can connect and say nothing. So each address has a share, and when all places are
//! taken, the address that has most of them gives its oldest to one that has fewer. What a peer of
//! ours opens is past its greeting within milliseconds; what stays is silent.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use drover_lanes::Closer;

use crate::limits::{GREETED_MAX, GREETED_PER_ADDRESS};
use crate::pool::lock;

#[derive(Debug)]
struct Entry {
    number: u64,
    from: IpAddr,
    closer: Closer,
}

#[derive(Debug, Default)]
struct Entries {
    /// Oldest first.
    all: Vec<Entry>,
    last: u64,
}

/// The places.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen(Mutex<Entries>);

/// A place that was given; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<HalfOpen>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.0)
            .all
            .retain(|entry| entry.number != self.number);
    }
}

/// Who gives way.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    There,
    /// The one at this position.
    InsteadOf(usize),
    Not,
}

impl HalfOpen {
    /// A place for a connection from `peer`, if there is one for it.
    pub(crate) fn place(self: &Arc<Self>, peer: SocketAddr, closer: Closer) -> Option<Place> {
        let from = peer.ip().to_canonical();
        let mut entries = lock(&self.0);
        let others: Vec<IpAddr> = entries.all.iter().map(|entry| entry.from).collect();
        match room(&others, from) {
            Room::There => {}
            Room::InsteadOf(position) => entries.all.remove(position).closer.close(),
            Room::Not => return None,
        }
        entries.last += 1;
        let number = entries.last;
        entries.all.push(Entry {
            number,
            from,
            closer,
        });
        let places = self.clone();
        Some(Place { places, number })
    }
}

fn room(others: &[IpAddr], newcomer: IpAddr) -> Room {
    let of = |address: IpAddr| others.iter().filter(|other| **other == address).count();
    let own = of(newcomer);
    if own >= GREETED_PER_ADDRESS {
        return Room::Not;
    }
    if others.len() < GREETED_MAX {
        return Room::There;
    }
    // The first of those that have as many is the oldest.
    let most = others.iter().map(|other| of(*other)).max().unwrap_or(0);
    let position = others.iter().position(|other| of(*other) == most);
    match position {
        Some(position) if most > own => Room::InsteadOf(position),
        _ => Room::Not,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([10, 0, (number >> 8) as u8, number as u8])
    }

    #[test]
    fn one_address_has_no_more_than_its_share() {
        let silent = vec![address(1); GREETED_PER_ADDRESS];
        assert_eq!(room(&silent, address(1)), Room::Not);
        assert_eq!(room(&silent, address(2)), Room::There);
    }

    #[test]
    fn when_all_places_are_taken_who_has_most_gives_its_oldest() {
        let mut others = vec![address(9); 3];
        for n in 0.. {
            if others.len() == GREETED_MAX {
                break;
            }
            others.push(address(n / 40 + 100));
        }
        assert_eq!(room(&others, address(1)), Room::InsteadOf(3));
        let crowded = others[3];
        assert_eq!(room(&others, crowded), Room::Not);
    }

    #[test]
    fn a_stranger_with_many_addresses_gives_its_oldest() {
        let others: Vec<_> = (0..GREETED_MAX).map(address).collect();
        assert_eq!(room(&others, address(9999)), Room::InsteadOf(0));
        assert_eq!(room(&others, address(5)), Room::Not);
    }
}
