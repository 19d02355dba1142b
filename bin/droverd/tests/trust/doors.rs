//! Whoever can reach the port and does not mean well, or does not know better.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::net::TcpSocket;

use super::place::{Host, Open, PATIENCE};
use super::provision::{Office, from_now, host};

/// Sends bytes; what comes back until the other side closes, which it must.
fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = stream.write_all(bytes);
    read_to_the_end(&mut stream)
}

fn read_to_the_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        let kept = std::io::ErrorKind::WouldBlock;
        assert_ne!(error.kind(), kept, "the connection was kept open");
    }
    answer
}

#[tokio::test]
async fn plain_http_is_told_that_the_port_speaks_tls() {
    let a = Host::founder().await;
    let answer = say(a.address, b"GET /v1/vms HTTP/1.1\r\nhost: a\r\n\r\n");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("this port speaks TLS 1.3"), "{answer}");
}

#[tokio::test]
async fn garbage_is_refused_and_the_agent_lives_on() {
    let a = Host::founder().await;
    let mut record = vec![0x16, 3, 1, 0xff, 0xff];
    record.resize(70_000, 7);
    let cases: [&[u8]; 5] = [
        &[0; 4096],
        b"\x16\x03\x01 this is TLS or worse\r\n\r\n",
        b"\x16\x03\x03\x00\x05\x01\xff\xff\xff\x00",
        &record,
        b"DROVER lane preamble",
    ];
    for bytes in cases {
        say(a.address, bytes);
    }
    let mut office = Office::of(&a.state());
    let b = office.client_of(&host("b"), from_now());
    a.asked_by(&b).host().await.unwrap();
}

#[tokio::test]
async fn the_silent_and_the_slow_are_dropped_within_a_bound() {
    let a = Host::founder().await;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(a.address).unwrap();
    let mut slow = TcpStream::connect(a.address).unwrap();
    slow.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    for stream in [&mut silent, &mut slow] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        read_to_the_end(stream);
    }
    let bound = drover_api::limits::HANDSHAKE;
    let took = begun.elapsed();
    assert!(
        took >= bound && took < bound + Duration::from_secs(5),
        "{took:?}"
    );
    a.client().host().await.unwrap();
}

/// Connects from this address of the loopback.
async fn connect_from(from: &str, to: SocketAddr) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn one_address_cannot_shut_the_door_for_others() {
    let a = Host::founder().await;
    let mut office = Office::of(&a.state());
    let b = office.client_of(&host("b"), from_now());
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(connect_from("127.0.0.66", a.address).await);
    }
    // From its own address nothing more gets in for a moment, from another one everything does.
    let stream = connect_from("127.0.0.2", a.address).await;
    let mut open = Open::over(stream, &a, &b).await.unwrap();
    assert_eq!(open.get("/v1/host").await, Some(200));
    let stream = connect_from("127.0.0.66", a.address).await;
    assert!(Open::over(stream, &a, &b).await.is_err());
    drop(idle);
}

#[tokio::test]
async fn strangers_cannot_shut_the_door_for_members() {
    let a = Host::founder().await;
    let mut office = Office::of(&a.state());
    let b = office.client_of(&host("b"), from_now());
    let mut idle = Vec::new();
    for stranger in 66..86 {
        for _ in 0..8 {
            idle.push(connect_from(&format!("127.0.0.{stranger}"), a.address).await);
        }
    }
    let stream = connect_from("127.0.0.2", a.address).await;
    assert!(
        Open::over(stream, &a, &b).await.is_err(),
        "every place is taken"
    );
    // A member is said to be at 127.0.0.1.
    let mut open = Open::to(&a, &b).await;
    assert_eq!(open.get("/v1/host").await, Some(200));
    // However many come, the operator's socket is its own, and the agent can end.
    a.client().host().await.unwrap();
    assert_eq!(a.agent.terminate(), Some(0));
    drop(idle);
}

#[tokio::test]
async fn one_host_has_a_share_of_the_connections() {
    let a = Host::founder().await;
    let mut office = Office::of(&a.state());
    let b = office.client_of(&host("b"), from_now());
    let c = office.client_of(&host("c"), from_now());
    let mut held = Vec::new();
    for _ in 0..32 {
        let mut open = Open::to(&a, &b).await;
        assert_eq!(open.get("/v1/host").await, Some(200));
        held.push(open);
    }
    assert_eq!(Open::to(&a, &b).await.get("/v1/host").await, None);
    assert_eq!(Open::to(&a, &c).await.get("/v1/host").await, Some(200));
    drop(held);
}
