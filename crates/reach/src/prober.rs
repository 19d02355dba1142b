//! Asks an answerer what the path to it carries.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use drover_types::{BitRate, ByteRate, Bytes};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::limits::{
    ANSWER_RATE, ASK_BYTES, ASK_TIME, ASK_TIME_MOST, DRAINED, KNOCKS, OF_RATE, PACKET_MOST,
    PATIENCE_LEAST, PATIENCE_MOST, PATIENCE_TRIPS, RATE_UNKNOWN, VOLLEY, VOLLEY_GAP,
};
use crate::pace::Pace;
use crate::packet::{HEADER, Message, Packet, Ticket};
use crate::report::{Report, Unfinished};
use crate::round::{Heard, Round, Sizes};
use crate::search::{Largest, Search};
use crate::socket::{Arrived, Datagrams, Sent, headers};
use crate::volley::{Trips, Volley};

/// A path that is to be asked about.
#[derive(Debug, Clone)]
pub struct Question {
    /// The interface of this host that is claimed: questions leave by it.
    pub interface: String,
    /// Its address.
    pub local: IpAddr,
    /// Where the answerer is.
    pub remote: SocketAddr,
    /// What it was given.
    pub ticket: Ticket,
    /// Largest packet of our interface, in bytes.
    pub mtu: u32,
    /// Largest packet of the other end's interface, in bytes.
    pub far_mtu: u32,
    /// Rate of the slower end's link, where it is known. No more than its [`OF_RATE`]th part is used.
    pub rate: Option<BitRate>,
    /// What asking may cost.
    pub budget: Budget,
}

/// What asking about one path may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How long.
    pub time: Duration,
    /// How many bytes of UDP's payload, both ways.
    pub bytes: Bytes,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            time: ASK_TIME,
            bytes: ASK_BYTES,
        }
    }
}

/// Nothing could be asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot ask from {local} on {interface}")]
pub struct NotAsked {
    /// The interface.
    pub interface: String,
    /// The address.
    pub local: IpAddr,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// Asks: first whether anybody is there, then small packets, then sizes there, then sizes back. To be called within a runtime of tokio.
///
/// # Errors
/// [`NotAsked`], for one when this host does not have the address. All else is in the report.
pub async fn ask(question: &Question) -> Result<Report, NotAsked> {
    let mut asking = Asking::of(question)?;
    let mut report = Report {
        trips: Trips::default(),
        arrivals: BTreeMap::new(),
        there: None,
        back: None,
        asked: 0,
        answered: 0,
        unfinished: None,
    };
    let end = asking.end;
    // A line that takes nothing more does not hold it up either.
    report.unfinished = match timeout_at(end, asking.all(&mut report)).await {
        Ok(asked) => asked.err(),
        Err(_) => Some(Unfinished::Time),
    };
    report.arrivals = asking.arrivals;
    (report.asked, report.answered) = asking.crossed;
    Ok(report)
}

/// Whether anybody answers to the interface that is claimed: a few small packets, and nothing else. To be called within a runtime of tokio.
///
/// # Errors
/// [`NotAsked`], as [`ask`].
pub async fn knock(question: &Question) -> Result<bool, NotAsked> {
    let mut asking = Asking::of(question)?;
    let end = asking.end;
    let answered = timeout_at(end, asking.is_answered()).await;
    let answered = answered.is_ok_and(|answered| answered == Ok(true));
    Ok(answered && asking.arrivals.contains_key(&question.interface))
}

struct Asking<'q> {
    question: &'q Question,
    socket: Datagrams,
    index: u32,
    pace: Pace,
    end: Instant,
    bytes_left: u64,
    sequence: u32,
    patience: Duration,
    arrivals: BTreeMap<String, u32>,
    /// Bytes of questions that were answered, and of their answers.
    crossed: (u64, u64),
    sending: Vec<u8>,
}

impl<'q> Asking<'q> {
    fn of(question: &'q Question) -> Result<Self, NotAsked> {
        Self::new(question).map_err(|source| NotAsked {
            interface: question.interface.clone(),
            local: question.local,
            source,
        })
    }

    fn new(question: &'q Question) -> io::Result<Self> {
        let socket = Datagrams::bind(SocketAddr::new(question.local, 0))?;
        let rate = question.rate.map_or(RATE_UNKNOWN, |rate| rate.0) / 8 / OF_RATE;
        // No answerer answers faster.
        let rate = rate.min(ANSWER_RATE.0);
        Ok(Self {
            question,
            index: socket.index(&question.interface)?,
            socket,
            pace: Pace::new(ByteRate(rate), std::time::Instant::now()),
            end: Instant::now() + question.budget.time.min(ASK_TIME_MOST),
            bytes_left: question.budget.bytes.0,
            sequence: 0,
            patience: PATIENCE_MOST,
            arrivals: BTreeMap::new(),
            crossed: (0, 0),
            sending: vec![0; PACKET_MOST as usize],
        })
    }

    async fn all(&mut self, report: &mut Report) -> Result<(), Unfinished> {
        if !self.is_answered().await? {
            report.trips.sent = KNOCKS;
            return Err(Unfinished::Silent);
        }
        let mut volley = Volley::default();
        let small = [(HEADER as u16, HEADER as u16); VOLLEY + KNOCKS as usize];
        let mut round = self.round_with_knocks(&small, KNOCKS as usize);
        let asked = self.volley(&mut round).await;
        for heard in round.told() {
            volley.sent();
            if let Heard::Answer(after) = heard {
                volley.answered(*after);
            }
        }
        report.trips = volley.trips();
        asked?;
        let Some(trip) = report.trips.round_trip else {
            return Err(Unfinished::FellSilent);
        };
        let trips = Duration::from_micros(trip.most).saturating_mul(PATIENCE_TRIPS);
        self.patience = trips.clamp(PATIENCE_LEAST, PATIENCE_MOST);
        // What only one end takes is for nobody to carry.
        let most = self.question.mtu.min(self.question.far_mtu);
        report.there = Some(self.search(most, |size| (size, HEADER as u16)).await?);
        report.back = Some(self.search(most, |size| (HEADER as u16, size)).await?);
        Ok(())
    }

    /// Asks all of it. Where the last is not answered, an end may just not have been woken: a knock that is answered tells.
    async fn volley(&mut self, round: &mut Round<'_>) -> Result<(), Unfinished> {
        self.exchange(round, VOLLEY_GAP).await?;
        while !round.last_is_heard() {
            if !round.knock() {
                return Err(Unfinished::FellSilent);
            }
            self.exchange(round, Duration::ZERO).await?;
            if round.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Whether anybody is there. By then both kernels have found their neighbours.
    async fn is_answered(&mut self) -> Result<bool, Unfinished> {
        let one = [(HEADER as u16, HEADER as u16)];
        for _ in 0..KNOCKS {
            let mut round = self.round(&one);
            self.exchange(&mut round, Duration::ZERO).await?;
            if matches!(round.told(), [Heard::Answer(_)]) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The largest packet up to `most` in the direction that `sizes` makes of it.
    async fn search(&mut self, most: u32, sizes: fn(u16) -> Sizes) -> Result<Largest, Unfinished> {
        let headers = headers(self.question.local);
        let payload =
            |packet: u32| u16::try_from(packet.saturating_sub(headers)).unwrap_or(u16::MAX);
        // The smallest packets crossed both ways, or there would be no search.
        let mut search = Search::new(headers + HEADER as u32, most.min(PACKET_MOST));
        while !search.asks().is_empty() {
            let packets = search.asks().to_vec();
            let asks: Vec<Sizes> = packets
                .iter()
                .map(|packet| sizes(payload(*packet)))
                .collect();
            let mut round = self.round(&asks);
            self.exchange(&mut round, Duration::ZERO).await?;
            for (packet, heard) in packets.into_iter().zip(round.told()) {
                match heard {
                    Heard::Answer(_) => search.crossed(packet),
                    Heard::RefusedHere | Heard::RefusedThere => search.refused(packet),
                    Heard::Nothing => {}
                }
            }
            search.over();
        }
        search.found().ok_or(Unfinished::Unsteady)
    }

    fn round<'a>(&mut self, asks: &'a [Sizes]) -> Round<'a> {
        self.round_with_knocks(asks, 0)
    }

    fn round_with_knocks<'a>(&mut self, asks: &'a [Sizes], knocks: usize) -> Round<'a> {
        let round = Round::new(self.sequence, asks, knocks);
        self.sequence = self.sequence.wrapping_add(asks.len() as u32);
        round
    }

    /// Asks all of it, no faster than is allowed, and waits for the answers.
    async fn exchange(&mut self, round: &mut Round<'_>, gap: Duration) -> Result<(), Unfinished> {
        let mut buffer = vec![0; PACKET_MOST as usize];
        let mut due = Instant::now();
        loop {
            if round.is_over() {
                return Ok(());
            }
            // Time first: whoever floods the port does not keep it open.
            let arrived = tokio::select! {
                biased;
                () = sleep_until(due.min(self.end)) => None,
                arrived = self.socket.receive(&mut buffer) => Some(arrived),
            };
            match arrived {
                None if Instant::now() >= self.end => return Err(Unfinished::Time),
                None => match round.next() {
                    Some((sequence, sizes)) => {
                        let heard = self.send(sequence, sizes).await?;
                        round.sent(heard);
                        let wait = self.pace.take(std::time::Instant::now(), cost(sizes));
                        due = Instant::now() + wait.max(gap);
                        if round.next().is_none() {
                            due += self.patience;
                        }
                    }
                    None => {
                        self.drain(round, &mut buffer);
                        return Ok(());
                    }
                },
                Some(Err(error)) => return Err(not_sent(&error)),
                Some(Ok(arrived)) => self.hear(arrived, round, &buffer),
            }
        }
    }

    /// Hears what had arrived by the end of a round: this end may have been woken late, and then its time comes first.
    fn drain(&mut self, round: &mut Round<'_>, buffer: &mut [u8]) {
        for _ in 0..DRAINED {
            let Some(arrived) = self.socket.receive_now(buffer) else {
                return;
            };
            self.hear(arrived, round, buffer);
        }
    }

    fn hear(&mut self, arrived: Arrived, round: &mut Round<'_>, buffer: &[u8]) {
        if arrived.from != self.question.remote {
            return;
        }
        let packet = Packet::read(&self.question.ticket, &buffer[..arrived.size]);
        if let Ok(packet) = packet
            && round.take(&packet)
        {
            self.crossed.0 += u64::from(round.size(packet.sequence));
            self.crossed.1 += u64::from(packet.size);
            let by = arrived.interface.map(|index| self.socket.name(index));
            let by = by.unwrap_or_else(|| "unknown".into());
            *self.arrivals.entry(by).or_default() += 1;
        }
    }

    async fn send(&mut self, sequence: u32, (size, answer): Sizes) -> Result<Heard, Unfinished> {
        let left = self.bytes_left.checked_sub(cost((size, answer)));
        self.bytes_left = left.ok_or(Unfinished::Bytes)?;
        let message = Message::Ask { answer };
        let packet = Packet {
            message,
            sequence,
            size,
        };
        let Some(datagram) = packet.write(&self.question.ticket, &mut self.sending) else {
            return Ok(Heard::RefusedHere);
        };
        let sent = self
            .socket
            .send_by(self.index, datagram, self.question.remote)
            .await;
        match sent {
            Ok(Sent::Left) => Ok(Heard::Nothing),
            Ok(Sent::TooLarge) => Ok(Heard::RefusedHere),
            Err(error) => Err(not_sent(&error)),
        }
    }
}

fn cost((size, answer): Sizes) -> u64 {
    u64::from(size) + u64::from(answer)
}

fn not_sent(error: &io::Error) -> Unfinished {
    let why = error.to_string();
    Unfinished::NotSent { why }
}
