//! An end that is not woken for a while, as one in between that holds what it carries.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use drover_reach::limits::VOLLEY;
use drover_reach::{Answerer, Budget, Order, Question, Report, Ticket, Unfinished, ask};
use tokio::net::UdpSocket;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Carries between whoever asks and the answerer. After the first question it holds all until so many are held, and carries on then.
async fn carry(socket: UdpSocket, answerer: SocketAddr, hold: usize) {
    let (mut buffer, mut held) = (vec![0; 65_535], Vec::new());
    let (mut asker, mut asked) = (None, 0);
    loop {
        let (size, from) = socket.recv_from(&mut buffer).await.unwrap();
        let datagram = buffer[..size].to_vec();
        if from == answerer {
            socket.send_to(&datagram, asker.unwrap()).await.unwrap();
            continue;
        }
        asker = Some(from);
        asked += 1;
        held.push(datagram);
        if asked == 1 || asked > hold {
            for datagram in held.drain(..) {
                socket.send_to(&datagram, answerer).await.unwrap();
            }
        }
    }
}

async fn asked(hold: usize) -> Report {
    let ticket = Ticket::random().unwrap();
    let order = Order {
        ticket: ticket.clone(),
        askers: vec![HERE],
        time: Duration::MAX,
    };
    let answerer = Answerer::bind(SocketAddr::new(HERE, 0), order).unwrap();
    let socket = UdpSocket::bind(SocketAddr::new(HERE, 0)).await.unwrap();
    let remote = socket.local_addr().unwrap();
    let carrying = tokio::spawn(carry(socket, answerer.local(), hold));
    let answering = tokio::spawn(answerer.run(std::future::pending()));
    let question = Question {
        interface: "lo".into(),
        local: HERE,
        remote,
        ticket,
        mtu: 1500,
        far_mtu: 1500,
        rate: None,
        budget: Budget::default(),
    };
    let report = ask(&question).await.unwrap();
    carrying.abort();
    answering.abort();
    report
}

#[tokio::test]
async fn an_end_that_is_not_woken_until_it_is_knocked_at_again_has_lost_nothing() {
    let report = asked(VOLLEY + 1).await;
    assert_eq!(
        (report.trips.sent as usize, report.trips.answered as usize),
        (VOLLEY, VOLLEY),
        "{report:?}"
    );
    assert_eq!(report.unfinished, None, "{report:?}");
}

#[tokio::test]
async fn an_end_that_answered_once_and_never_again_is_not_said_to_be_silent() {
    let report = asked(usize::MAX).await;
    assert_eq!(report.trips.answered, 0, "{report:?}");
    assert_eq!(report.unfinished, Some(Unfinished::FellSilent));
}
