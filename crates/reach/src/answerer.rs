//! Answers questions at one address, to those who were named and have the ticket, for some time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::allowance::Allowance;
use crate::limits::{ANSWER_TIME_MOST, ASKERS, PACKET_MOST};
use crate::packet::{HEADER, Message, Packet, Ticket};
use crate::socket::{Datagrams, Sent};

/// Who is to be answered, and for how long.
#[derive(Debug, Clone)]
pub struct Order {
    /// What a question has to be made with.
    pub ticket: Ticket,
    /// From where they may come; [`ASKERS`] at most, those beyond are not answered.
    pub askers: Vec<IpAddr>,
    /// How long; [`ANSWER_TIME_MOST`] at most.
    pub time: Duration,
}

/// Answers at one address. Nothing is answered before [`Answerer::run`], nor when that is dropped.
#[derive(Debug)]
pub struct Answerer {
    socket: Datagrams,
    order: Order,
    answered: Answered,
}

/// It cannot answer.
#[derive(Debug, thiserror::Error)]
#[error("cannot answer at {at}")]
pub struct NotAnswering {
    /// Where.
    pub at: SocketAddr,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// What an answerer did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answered {
    /// Answers that the kernel took.
    pub answers: u64,
    /// Bytes of them, in UDP's payload.
    pub bytes: u64,
    /// Bytes of questions, in UDP's payload.
    pub heard: u64,
    /// Questions that were left, as they came too fast or there were too many.
    pub left: u64,
    /// Answers that the kernel did not send.
    pub unsent: u64,
    /// What it said of the last of them.
    pub unsent_why: Option<String>,
}

impl Answerer {
    /// There; at any port for 0. To be called within a runtime of tokio.
    ///
    /// # Errors
    /// [`NotAnswering`], for one when the host does not have the address, or something else has the port.
    pub fn bind(at: SocketAddr, mut order: Order) -> Result<Self, NotAnswering> {
        order.askers.truncate(ASKERS);
        order.time = order.time.min(ANSWER_TIME_MOST);
        let socket = Datagrams::bind(at);
        let socket = socket.map_err(|source| NotAnswering { at, source })?;
        Ok(Self {
            socket,
            order,
            answered: Answered::default(),
        })
    }

    /// Where it answers.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.socket.local()
    }

    /// Answers until that, or until its time is over.
    pub async fn run(mut self, until: impl Future<Output = ()>) -> Answered {
        let end = Instant::now() + self.order.time;
        let mut until = pin!(until);
        let mut allowance = Allowance::new(std::time::Instant::now());
        let mut buffer = vec![0; PACKET_MOST as usize];
        loop {
            // The end first: whoever floods the port does not keep it open.
            let arrived = tokio::select! {
                biased;
                () = sleep_until(end) => return self.answered,
                () = until.as_mut() => return self.answered,
                arrived = self.socket.receive(&mut buffer) => arrived,
            };
            let Ok(arrived) = arrived else { continue };
            if !self.order.askers.contains(&arrived.from.ip()) {
                continue;
            }
            let read = Packet::read(&self.order.ticket, &buffer[..arrived.size]);
            if let Ok(Packet {
                message: Message::Ask { answer },
                sequence,
                size,
            }) = read
            {
                self.answered.heard += u64::from(size);
                let packet = Packet {
                    message: Message::Answer,
                    sequence,
                    size: answer,
                };
                self.answer(packet, arrived.from, &mut allowance, &mut buffer);
            }
        }
    }

    /// Sends it, or says that it is too large for this end.
    fn answer(
        &mut self,
        packet: Packet,
        to: SocketAddr,
        allowance: &mut Allowance,
        buffer: &mut [u8],
    ) {
        let mut bytes = u64::from(packet.size);
        if !allowance.admits(std::time::Instant::now(), bytes) {
            self.answered.left += 1;
            return;
        }
        let Some(datagram) = packet.write(&self.order.ticket, buffer) else {
            return;
        };
        // By the kernel's routes, as the answers of a lane that was accepted.
        let mut sent = self.socket.send_now(datagram, to);
        if matches!(sent, Ok(Sent::TooLarge)) {
            bytes = HEADER as u64;
            let told = Packet {
                message: Message::TooLarge,
                size: HEADER as u16,
                ..packet
            };
            if let Some(told) = told.write(&self.order.ticket, buffer) {
                sent = self.socket.send_now(told, to);
            }
        }
        // One that does not leave now is as good as lost, and no loss of the path.
        if let Err(error) = sent {
            self.answered.unsent += 1;
            self.answered.unsent_why = Some(error.to_string());
            return;
        }
        self.answered.answers += 1;
        self.answered.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Budget, Question, Unfinished, ask};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn order(ticket: &Ticket, askers: Vec<IpAddr>) -> Order {
        Order {
            ticket: ticket.clone(),
            askers,
            time: Duration::MAX,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_time_is_ordered_it_ends_by_itself() {
        let ticket = Ticket::random().unwrap();
        let begun = Instant::now();
        let answerer =
            Answerer::bind(SocketAddr::new(HERE, 0), order(&ticket, vec![HERE])).unwrap();
        assert_eq!(answerer.run(pending()).await, Answered::default());
        let lasted = begun.elapsed();
        assert!(lasted >= ANSWER_TIME_MOST, "{lasted:?}");
    }

    #[tokio::test]
    async fn it_ends_when_it_is_told_to_and_says_what_it_did() {
        let ticket = Ticket::random().unwrap();
        let answerer =
            Answerer::bind(SocketAddr::new(HERE, 0), order(&ticket, vec![HERE])).unwrap();
        let (asked, answered) = asked(answerer, ticket).await;
        assert_eq!(asked.unfinished, None, "{asked:?}");
        // A hundred small ones, and sizes both ways.
        assert!(answered.answers > 102, "{answered:?}");
        assert_eq!((answered.left, answered.unsent), (0, 0));
        // An answer that arrives late counts for nothing.
        assert!(asked.asked > 102 * HEADER as u64 && asked.asked <= answered.heard);
        assert!(asked.answered > 102 * HEADER as u64 && asked.answered <= answered.bytes);
    }

    #[tokio::test]
    async fn those_beyond_the_most_askers_are_not_answered() {
        let ticket = Ticket::random().unwrap();
        let mut askers = vec![IpAddr::from([127, 0, 0, 9]); ASKERS];
        askers.push(HERE);
        let answerer = Answerer::bind(SocketAddr::new(HERE, 0), order(&ticket, askers)).unwrap();
        let (asked, answered) = asked(answerer, ticket).await;
        assert_eq!(asked.unfinished, Some(Unfinished::Silent));
        assert_eq!(answered, Answered::default());
    }

    /// Asks, has the answerer end then, and what both say.
    async fn asked(answerer: Answerer, ticket: Ticket) -> (crate::Report, Answered) {
        let question = Question {
            interface: "lo".into(),
            local: HERE,
            remote: answerer.local(),
            ticket,
            mtu: 1500,
            far_mtu: 1500,
            rate: None,
            budget: Budget::default(),
        };
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let answering = tokio::spawn(answerer.run(async move { drop(ended.await) }));
        let asked = ask(&question).await.unwrap();
        end.send(()).unwrap();
        (asked, answering.await.unwrap())
    }
}
