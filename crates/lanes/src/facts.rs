//! What the kernel knows of a lane's connection (tcp(7), `TCP_INFO`).

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use serde::{Deserialize, Serialize};

/// The beginning of the kernel's `struct tcp_info`, up to and with `tcpi_rwnd_limited`. Every kernel from
/// 4.10 on has that much; what newer ones add is not asked for.
const BYTES: usize = 184;

/// The option as bytes: the kernel writes as many as it is asked for.
#[derive(Debug, Clone, Copy)]
struct TcpInfo;

nix::getsockopt_impl!(
    TcpInfo,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u8; BYTES],
    GetStruct<[u8; BYTES]>
);

/// What the kernel knows of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpFacts {
    /// Smoothed round trip of a segment.
    pub round_trip: Duration,
    /// Segments sent again so far.
    pub retransmits: u32,
    /// Bytes per second that the peer acknowledged most recently.
    pub delivery_rate: u64,
    /// Segments that may be on their way.
    pub congestion_window: u32,
    /// Largest segment that is sent, in bytes.
    pub segment_bytes: u32,
}

impl TcpFacts {
    pub(crate) fn of(connection: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(parse(&getsockopt(&connection, TcpInfo)?))
    }
}

/// How far a connection's bytes have come since it was made, and what they waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that the peer's kernel has acknowledged.
    pub acknowledged: u64,
    /// Segments with bytes that were sent, those sent again included.
    pub segments: u32,
    /// Of these, segments that were sent again.
    pub retransmits: u32,
    /// How long there was something to send, or to be acknowledged.
    pub busy: Duration,
    /// Of that time, how long the peer had no room: who reads there was slower than the path.
    pub peer_full: Duration,
}

impl Progress {
    pub(crate) fn of(connection: BorrowedFd<'_>) -> io::Result<Self> {
        let info = getsockopt(&connection, TcpInfo)?;
        Ok(Self {
            acknowledged: long(&info, 120),
            segments: word(&info, 156),
            retransmits: word(&info, 100),
            busy: Duration::from_micros(long(&info, 168)),
            peer_full: Duration::from_micros(long(&info, 176)),
        })
    }
}

/// Takes the fields out, at their places in `struct tcp_info` (Linux `include/uapi/linux/tcp.h`).
fn parse(info: &[u8; BYTES]) -> TcpFacts {
    TcpFacts {
        segment_bytes: word(info, 16),
        round_trip: Duration::from_micros(word(info, 68).into()),
        congestion_window: word(info, 80),
        retransmits: word(info, 100),
        delivery_rate: long(info, 160),
    }
}

fn word(info: &[u8; BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&info[at..at + 4]);
    u32::from_ne_bytes(bytes)
}

fn long(info: &[u8; BYTES], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&info[at..at + 8]);
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::limits::CONNECT_TIMEOUT;
    use crate::{Connection, Listener, Target};

    #[test]
    fn fields_are_taken_from_their_places() {
        let mut info = [0; BYTES];
        for (at, value) in [(16, 1448u32), (68, 250), (80, 10), (100, 3)] {
            info[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        info[160..168].copy_from_slice(&125_000_000u64.to_ne_bytes());
        let expected = TcpFacts {
            round_trip: Duration::from_micros(250),
            retransmits: 3,
            delivery_rate: 125_000_000,
            congestion_window: 10,
            segment_bytes: 1448,
        };
        assert_eq!(parse(&info), expected);
    }

    #[test]
    fn a_connection_tells_its_round_trip_window_and_segments() {
        let listener = Listener::hold(0).unwrap();
        listener.listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        let target = |segment| Target {
            interface: "lo".into(),
            local: Ipv4Addr::LOCALHOST.into(),
            remote: (Ipv4Addr::LOCALHOST, listener.port()).into(),
            segment,
            patience: CONNECT_TIMEOUT,
        };
        let near = Connection::connect(&target(None)).unwrap().into_plain();
        let far = listener.accept().unwrap().into_plain();
        near.send(b"header", &[0; 100_000]).unwrap();
        far.receive(&mut [0; 100_006]).unwrap();
        let facts = near.facts().unwrap();
        assert!(facts.round_trip > Duration::ZERO, "{facts:?}");
        assert!(
            facts.congestion_window > 0 && facts.delivery_rate > 0,
            "{facts:?}"
        );
        assert!(facts.segment_bytes > 1220, "{facts:?}");
        // What was received is acknowledged by then, or with the next packet; the kernel counts its SYN, too.
        let progress = near.progress().unwrap();
        assert!(progress.segments > 0, "{progress:?}");
        assert!(
            (50_000..=100_007).contains(&progress.acknowledged),
            "{progress:?}"
        );
        assert_eq!(progress.retransmits, 0);

        let near = Connection::connect(&target(Some(1220)))
            .unwrap()
            .into_plain();
        let far = listener.accept().unwrap().into_plain();
        // Timestamps take 12 bytes of it. It holds for both directions.
        for lane in [near, far] {
            let bytes = lane.facts().unwrap().segment_bytes;
            assert!((1200..=1220).contains(&bytes), "{bytes}");
        }
    }
}
