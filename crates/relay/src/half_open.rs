//! Connections that are being greeted: how many there may be, and who makes room for whom.
//!
//! A stranger can connect and say nothing, in IPv6 from any address of its network. So each address and
//! each network has a share, and when all places of a network, or of all, are taken, whoever has most of
//! them gives its oldest to one that has fewer. What a peer of
//! ours opens is past its greeting within milliseconds; what stays is silent.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use drover_lanes::Closer;
use drover_types::network_of;

use crate::limits::{GREETED_MAX, GREETED_PER_ADDRESS, GREETED_PER_NETWORK};
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
    let networks: Vec<IpAddr> = others.iter().map(|other| network_of(*other)).collect();
    let network = network_of(newcomer);
    let own = count(others, newcomer);
    let of_network = count(&networks, network);
    if own >= GREETED_PER_ADDRESS {
        return Room::Not;
    }
    if of_network >= GREETED_PER_NETWORK {
        // Its neighbours give way to it, not others.
        return give_way(others, &networks, network, own);
    }
    if others.len() < GREETED_MAX {
        return Room::There;
    }
    let most = networks.iter().map(|other| count(&networks, *other)).max();
    let mut crowded = networks.iter();
    let crowded = crowded.find(|other| Some(count(&networks, **other)) == most);
    match (crowded, most) {
        (Some(crowded), Some(most)) if most > of_network => {
            give_way(others, &networks, *crowded, 0)
        }
        _ => give_way(others, &networks, network, own),
    }
}

/// The oldest of the address that has most in this network, if that is more than `own`.
fn give_way(others: &[IpAddr], networks: &[IpAddr], network: IpAddr, own: usize) -> Room {
    let within = || {
        let places = others.iter().zip(networks).enumerate();
        places.filter(|(_, (_, of))| **of == network)
    };
    let most = within().map(|(_, (other, _))| count(others, *other)).max();
    // The first of those that have as many is the oldest.
    let mut oldest = within().filter(|(_, (other, _))| Some(count(others, **other)) == most);
    match (oldest.next(), most) {
        (Some((position, _)), Some(most)) if most > own => Room::InsteadOf(position),
        _ => Room::Not,
    }
}

fn count(addresses: &[IpAddr], address: IpAddr) -> usize {
    addresses.iter().filter(|other| **other == address).count()
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

    /// Neighbours in one IPv6 network.
    fn neighbour(number: u16) -> IpAddr {
        IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, number])
    }

    #[test]
    fn a_stranger_with_all_addresses_of_an_ipv6_network_leaves_places_to_others_and_to_neighbours()
    {
        let silent: Vec<_> = (0..GREETED_PER_NETWORK as u16).map(neighbour).collect();
        assert_eq!(room(&silent, neighbour(9999)), Room::InsteadOf(0));
        assert_eq!(room(&silent, neighbour(5)), Room::Not);
        assert_eq!(room(&silent, address(1)), Room::There);
        let mut all = silent;
        all.extend((0..GREETED_MAX - GREETED_PER_NETWORK).map(address));
        assert_eq!(room(&all, address(9999)), Room::InsteadOf(0));
    }

    #[test]
    fn hosts_that_are_neighbours_may_each_open_all_their_lanes_at_once() {
        let both: Vec<_> = (0..GREETED_PER_NETWORK as u16 - 1)
            .map(|n| neighbour(n % 2))
            .collect();
        assert_eq!(room(&both, neighbour(1)), Room::There);
    }
}
