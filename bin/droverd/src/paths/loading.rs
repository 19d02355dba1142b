//! Loads paths with connections, where that was asked for and takes nothing from guests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drover_api::{AnswererView, ErrorCode, LoadRequest, Refusal};
use drover_reach::Ticket;
use drover_reach::limits::{
    LOAD_GREETING, LOAD_LOOK, LOAD_TIME_LEAST, LOAD_TIME_MOST, LOAD_WARM_UP, RATE_UNKNOWN,
};
use drover_reach::load::{self, Load, Measured};
use drover_tune::facts::{Carried, Fact, HeldUpBy, Slot};
use drover_types::{BitRate, HostName, MigrationId, with_sources};
use tokio::time::{Instant, timeout};

use super::pairs::Pair;
use crate::facts;

/// Of a line's rate what a load may take where guests run at either end and nothing else was said, in percent.
const SHARE_BESIDE_GUESTS: u8 = 50;

/// Whether paths may be loaded so.
///
/// # Errors
/// What is asked for is out of bounds.
pub fn check(asked: LoadRequest) -> Result<(), Refusal> {
    let LoadRequest { time_ms, share } = asked;
    let (least, most) = (LOAD_TIME_LEAST.as_millis(), LOAD_TIME_MOST.as_millis());
    if !(least..=most).contains(&u128::from(time_ms)) {
        let message = format!("a path is loaded for {least} to {most} ms, and not for {time_ms}");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    if let Some(share) = share.filter(|share| !(1..=100).contains(share)) {
        let message = format!("a load may take 1 to 100 percent of a line, and not {share}");
        return Err(Refusal::new(ErrorCode::BadRequest, message));
    }
    Ok(())
}

/// How paths to one host are loaded.
#[derive(Debug, Clone)]
pub struct Loading {
    order: MigrationId,
    ticket: Ticket,
    port: u16,
    time: Duration,
    /// In percent.
    share: u8,
}

/// Who else loads the same host at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Others {
    /// Hosts that load the far line, this one with them.
    pub senders: u32,
    /// The rate of that line.
    pub far_line: Option<BitRate>,
    /// When all begin.
    pub begin: Instant,
}

impl Loading {
    /// By what was asked for, which was [checked](check), and what the far host said; `guests` may use links here.
    ///
    /// # Errors
    /// Why nothing is loaded, to be read after "because".
    pub fn agreed(
        asked: LoadRequest,
        far: &HostName,
        answerer: &AnswererView,
        ticket: &Ticket,
        guests: usize,
        busy: Option<&str>,
    ) -> Result<Self, String> {
        if let Some(busy) = busy {
            return Err(busy.to_owned());
        }
        if let Some(why) = &answerer.no_load {
            return Err(why.clone());
        }
        let port = answerer
            .load_port
            .ok_or_else(|| format!("{far} takes no load: its agent is of an older version, or has not opened its port for lanes"))?;
        let beside = if guests > 0 || answerer.guests > 0 {
            SHARE_BESIDE_GUESTS
        } else {
            100
        };
        Ok(Self {
            order: MigrationId(answerer.id.0),
            ticket: ticket.clone(),
            port,
            time: Duration::from_millis(asked.time_ms),
            share: asked.share.unwrap_or(beside),
        })
    }

    /// Loads one path, if it ends by then; gives it up where a guest begins to move here.
    pub async fn of(&self, pair: &Pair, end: Instant, moves: impl Fn() -> bool) -> Fact<Carried> {
        if Instant::now() + LOAD_GREETING + LOAD_WARM_UP + self.time > end {
            return Fact::unknown("the time for asking was over before");
        }
        let most = self.most(pair.rate, (pair.rate, 1));
        self.carried(pair, (most, None), moves).await
    }

    /// Loads one path together with others; gives it up where a guest begins to move here.
    pub async fn beside(
        &self,
        pair: &Pair,
        others: &Others,
        moves: impl Fn() -> bool,
    ) -> Fact<Carried> {
        let Others {
            senders,
            far_line,
            begin,
        } = *others;
        let most = self.most(pair.rate, (far_line.or(pair.rate), senders));
        self.carried(pair, (most, Some(begin)), moves).await
    }

    async fn carried(
        &self,
        pair: &Pair,
        (most, begin): (Option<BitRate>, Option<Instant>),
        moves: impl Fn() -> bool,
    ) -> Fact<Carried> {
        if moves() {
            return Fact::unknown("a guest began to move");
        }
        let load = Load {
            interface: pair.near.interface.clone(),
            local: pair.near.address,
            remote: SocketAddr::new(pair.far.address, self.port),
            order: self.order,
            ticket: self.ticket.clone(),
            most,
            time: self.time,
            begin: begin.map(Instant::into_std),
        };
        let halt = Arc::new(AtomicBool::new(false));
        let halted = Arc::clone(&halt);
        let mut measuring = tokio::task::spawn_blocking(move || load::measure(&load, &halted));
        let middle = begin.unwrap_or_else(Instant::now) + LOAD_WARM_UP + self.time / 2;
        let mut slot = None;
        let measured = loop {
            match timeout(LOAD_LOOK, &mut measuring).await {
                Ok(measured) => break measured,
                Err(_) if moves() => halt.store(true, Ordering::Release),
                Err(_) if slot.is_none() && Instant::now() >= middle => {
                    slot = Some(slot_of(&pair.near.interface).await);
                }
                Err(_) => {}
            }
        };
        match measured {
            Ok(Ok(measured)) => {
                let slot = slot.flatten();
                Fact::Known(Carried {
                    slot,
                    ..carried(&measured, pair.rate, most)
                })
            }
            Ok(Err(error)) => Fact::unknown(with_sources(&error)),
            Err(error) => Fact::unknown(format!("the agent failed at it: {error}")),
        }
    }

    /// Nothing limits a load that may have all of its line. So many hosts share what loads may have of the far one.
    fn most(
        &self,
        line: Option<BitRate>,
        (far, senders): (Option<BitRate>, u32),
    ) -> Option<BitRate> {
        let part = |line: Option<BitRate>| {
            let line = line.map_or(RATE_UNKNOWN, |line| line.0);
            line / 100 * u64::from(self.share)
        };
        let of_far = part(far) / u64::from(senders.max(1));
        (self.share < 100).then(|| BitRate(part(line).min(of_far)))
    }
}

/// How the slot of that interface's adapter works now.
async fn slot_of(nic: &str) -> Option<Slot> {
    let nic = nic.to_owned();
    let read = move || facts::slot(&nic);
    tokio::task::spawn_blocking(read).await.ok().flatten()
}

fn carried(measured: &Measured, line: Option<BitRate>, most: Option<BitRate>) -> Carried {
    Carried {
        rate: measured.rate.0,
        line: line.map(|line| line.0),
        allowed: most.map(|most| most.0),
        packets: measured.segments,
        again: measured.retransmits,
        held_up_by: match measured.held_up_by {
            load::HeldUpBy::Path => HeldUpBy::Path,
            load::HeldUpBy::Near => HeldUpBy::Near,
            load::HeldUpBy::Far => HeldUpBy::Far,
        },
        slot: None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicUsize;

    use drover_api::TicketText;
    use drover_reach::Order;
    use drover_reach::limits::LOAD_CONNECTIONS;
    use drover_reach::load::Sink;
    use drover_relay::LaneListener;
    use drover_types::{AnswererId, PathEnd};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// For a load that is given up, and all that goes with it on a loaded machine: of one that is not, 10 s are left.
    const GIVEN_UP: Duration = Duration::from_secs(3);

    fn answerer(guests: usize, load_port: Option<u16>) -> AnswererView {
        AnswererView {
            id: AnswererId(uuid::Uuid::now_v7()),
            ticket: TicketText(String::new()),
            port: 7471,
            at: Vec::new(),
            moving: 0,
            guests,
            load_port,
            no_load: None,
            interfaces: Vec::new(),
            ports: Default::default(),
        }
    }

    fn agreed(
        share: Option<u8>,
        far: &AnswererView,
        guests: usize,
        busy: Option<&str>,
    ) -> Result<Loading, String> {
        let asked = LoadRequest {
            time_ms: 1_000,
            share,
        };
        let host = "b".parse().unwrap();
        Loading::agreed(asked, &host, far, &Ticket([0; 32]), guests, busy)
    }

    #[test]
    fn a_load_leaves_half_of_the_line_to_guests_of_either_end_unless_more_is_asked_for() {
        let share = |share, near, far| {
            let loading = agreed(share, &answerer(far, Some(1)), near, None).unwrap();
            let line = Some(BitRate(10_000_000_000));
            loading.most(line, (line, 1))
        };
        assert_eq!(share(None, 0, 0), None);
        for (near, far) in [(1, 0), (0, 1)] {
            assert_eq!(share(None, near, far), Some(BitRate(5_000_000_000)));
        }
        assert_eq!(share(Some(20), 0, 0), Some(BitRate(2_000_000_000)));
        assert_eq!(share(Some(100), 3, 3), None);
        let unknown = agreed(Some(10), &answerer(0, Some(1)), 0, None).unwrap();
        assert_eq!(unknown.most(None, (None, 1)), Some(BitRate(100_000_000)));
    }

    #[test]
    fn what_loads_may_have_of_a_line_is_for_all_that_load_it_together() {
        let line = |gbit: u64| Some(BitRate(gbit * 1_000_000_000));
        // The far one has guests.
        let half = agreed(None, &answerer(1, Some(1)), 0, None).unwrap();
        assert_eq!(
            half.most(line(10), (line(10), 4)),
            Some(BitRate(1_250_000_000))
        );
        // Slower ones leave some of it.
        assert_eq!(
            half.most(line(1), (line(10), 4)),
            Some(BitRate(500_000_000))
        );
        let all = agreed(None, &answerer(0, Some(1)), 0, None).unwrap();
        assert_eq!(all.most(line(10), (line(10), 4)), None);
    }

    #[test]
    fn a_load_for_less_or_more_than_it_may_take_is_refused_with_the_bounds() {
        let asked = |time_ms, share| check(LoadRequest { time_ms, share });
        for (time_ms, share) in [(100, None), (10_000, Some(1)), (1_000, Some(100))] {
            asked(time_ms, share).unwrap();
        }
        for (time_ms, share, told) in [
            (99, None, "100 to 10000 ms, and not for 99"),
            (10_001, None, "100 to 10000 ms"),
            (u64::MAX, None, "100 to 10000 ms"),
            (1_000, Some(0), "1 to 100 percent of a line, and not 0"),
            (1_000, Some(101), "1 to 100 percent"),
        ] {
            let refusal = asked(time_ms, share).unwrap_err();
            assert_eq!(refusal.code, ErrorCode::BadRequest);
            assert!(refusal.message.contains(told), "{}", refusal.message);
        }
    }

    #[test]
    fn nothing_is_loaded_while_guests_move_nor_where_the_far_end_takes_no_load() {
        let why = agreed(None, &answerer(0, Some(1)), 0, Some("one moves")).unwrap_err();
        assert_eq!(why, "one moves");
        let why = agreed(None, &answerer(0, None), 0, None).unwrap_err();
        assert!(why.contains("b takes no load"), "{why}");
        let busy = AnswererView {
            no_load: Some("b is busy with a load of c".into()),
            ..answerer(0, None)
        };
        let why = agreed(None, &busy, 0, None).unwrap_err();
        assert_eq!(why, "b is busy with a load of c");
    }

    #[tokio::test]
    async fn a_load_ends_once_a_guest_begins_to_move() {
        let lanes = LaneListener::hold(0).unwrap();
        let far = answerer(0, Some(lanes.port()));
        let ticket = Ticket::random().unwrap();
        let sink = Sink::new(Order {
            ticket: ticket.clone(),
            askers: vec![HERE],
            time: Duration::from_secs(60),
        });
        let taken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&taken);
        let order = MigrationId(far.id.0);
        let expected = lanes.expect_elsewhere(order, move |connection, preamble, until| {
            sink.take(connection, preamble, until).unwrap();
            count.fetch_add(1, Ordering::AcqRel);
            Ok(())
        });
        assert!(expected.offer(&[HERE]).is_empty());
        let asked = LoadRequest {
            time_ms: 10_000,
            share: Some(10),
        };
        let host = "b".parse().unwrap();
        let loading = Loading::agreed(asked, &host, &far, &ticket, 0, None).unwrap();
        let end = PathEnd {
            interface: "lo".into(),
            address: HERE,
        };
        let pair = Pair {
            near: end.clone(),
            far: end,
            rate: Some(BitRate(1_000_000_000)),
        };
        // One does as soon as the path is loaded.
        let began = OnceLock::new();
        let moves = || {
            let is_loaded = taken.load(Ordering::Acquire) == LOAD_CONNECTIONS;
            if is_loaded {
                began.get_or_init(Instant::now);
            }
            is_loaded
        };
        let in_time = Instant::now() + Duration::from_secs(60);
        let found = loading.of(&pair, in_time, moves).await;
        let took = began.get().unwrap().elapsed();
        let why = "it was given up, as a guest began to move";
        assert_eq!(found, Fact::unknown(why));
        assert!(took < GIVEN_UP, "{took:?}");
    }
}
