//! Answers questions at one address, to those who were named and have the ticket, for some time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::Pace;
use crate::limits::{
    ANSWER_AHEAD, ANSWER_BYTES, ANSWER_RATE, ANSWER_TIME_MOST, ASKERS, PACKET_MOST,
};
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
#[error("cannot answer at {address}")]
pub struct NotAnswering {
    /// Where.
    pub address: IpAddr,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

/// What an answerer did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answered {
    /// Answers.
    pub answers: u64,
    /// Bytes of them, in UDP's payload.
    pub bytes: u64,
    /// Questions that were left, as they came too fast or there were too many.
    pub left: u64,
}

impl Answerer {
    /// At any port of that address. To be called within a runtime of tokio.
    ///
    /// # Errors
    /// [`NotAnswering`], for one when the host does not have the address.
    pub fn bind(address: IpAddr, mut order: Order) -> Result<Self, NotAnswering> {
        order.askers.truncate(ASKERS);
        order.time = order.time.min(ANSWER_TIME_MOST);
        let socket = Datagrams::bind(SocketAddr::new(address, 0));
        let socket = socket.map_err(|source| NotAnswering { address, source })?;
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

    /// Answers until its time is over.
    pub async fn run(mut self) -> Answered {
        let end = Instant::now() + self.order.time;
        let mut pace = Pace::new(ANSWER_RATE, std::time::Instant::now());
        let mut buffer = vec![0; PACKET_MOST as usize];
        loop {
            // The end first: whoever floods the port does not keep it open.
            let arrived = tokio::select! {
                biased;
                () = sleep_until(end) => return self.answered,
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
                ..
            }) = read
            {
                let packet = Packet {
                    message: Message::Answer,
                    sequence,
                    size: answer,
                };
                self.answer(packet, arrived.from, &mut pace, &mut buffer);
            }
        }
    }

    /// Sends it, or says that it is too large for this end.
    fn answer(&mut self, packet: Packet, to: SocketAddr, pace: &mut Pace, buffer: &mut [u8]) {
        let bytes = u64::from(packet.size);
        let ahead = ANSWER_AHEAD;
        let fits = self.answered.bytes + bytes <= ANSWER_BYTES.0;
        if !fits || !pace.admits(std::time::Instant::now(), bytes, ahead) {
            self.answered.left += 1;
            return;
        }
        let Some(datagram) = packet.write(&self.order.ticket, buffer) else {
            return;
        };
        // By the kernel's routes, as the answers of a lane that was accepted. One that cannot be sent now is as good as lost.
        let sent = self.socket.send_now(datagram, to);
        if matches!(sent, Ok(Sent::TooLarge)) {
            let told = Packet {
                message: Message::TooLarge,
                size: HEADER as u16,
                ..packet
            };
            if let Some(told) = told.write(&self.order.ticket, buffer) {
                let _ = self.socket.send_now(told, to);
            }
        }
        self.answered.answers += 1;
        self.answered.bytes += bytes;
    }
}
