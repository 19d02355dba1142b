//! At which addresses lanes are let in.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream};

use drover_relay::{Cause, Security, open_lanes};
use drover_types::MigrationId;
use pair::{Pair, Protected, TOKEN, order, pair};

/// All of 127.0.0.0/8 is this machine's.
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn is_refused(address: IpAddr, port: u16) -> bool {
    let connected = TcpStream::connect((address, port));
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn only_addresses_that_were_offered_are_listened_on_and_only_while_a_migration_is_expected() {
    let Pair {
        listener,
        expected,
        destination,
        ..
    } = pair(Protected::Plain);
    let port = listener.port();
    assert!(!is_refused(HERE, port));
    for other in [THERE, Ipv6Addr::LOCALHOST.into()] {
        assert!(is_refused(other, port), "{other}");
    }
    let other = MigrationId::from_bytes([4; 16]);
    let second = listener.expect(other, TOKEN, Security::Plain, &destination);
    assert!(second.offer(&[HERE, THERE]).is_empty());
    assert!(!is_refused(THERE, port));
    // What another still needs stays.
    drop(expected);
    assert!(!is_refused(HERE, port));
    drop(second);
    assert!(is_refused(HERE, port) && is_refused(THERE, port));
}

#[test]
fn an_address_that_cannot_be_listened_at_is_told_once_and_tried_again() {
    let pair = pair(Protected::Plain);
    let foreign: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    let told = pair.expected.offer(&[foreign, THERE]);
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let port = pair.listener.port();
    assert_eq!(
        told,
        [format!("cannot listen for lanes at 192.0.2.1:{port}")]
    );
    assert!(pair.expected.offer(&[foreign, THERE]).is_empty());
    assert!(!is_refused(THERE, port));
    pair.connect();
    pair.carries();
}

#[test]
fn a_lane_that_comes_to_an_address_offered_for_another_migration_is_refused() {
    let pair = pair(Protected::Plain);
    let other = MigrationId::from_bytes([4; 16]);
    let relay = &pair.destination;
    let second = pair.listener.expect(other, TOKEN, Security::Plain, relay);
    assert!(second.offer(&[THERE]).is_empty());
    let mut order = order(pair.listener.port(), Security::Plain);
    for path in &mut order.paths {
        path.destination.address = THERE;
    }
    let opened = open_lanes(&order);
    assert!(opened.lanes.is_empty());
    let reason = &opened.failures[0].reason;
    assert!(reason.contains("no such migration"), "{reason}");
    let refused = pair.listener.turned_away();
    assert_eq!(refused.keys().collect::<Vec<_>>(), [&Cause::Unexpected]);
    // At its own address it is let in.
    pair.connect();
    pair.carries();
}
