//! The process as its agent sees it.

use std::collections::HashMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{Cause, TurnedAway};
use drover_types::with_sources;

use crate::limits::{ANSWER, GREETING, OPEN_ANSWER, SEND};
use crate::lines::{self, Lines};
use crate::protocol::{
    Answer, Asked, Counters, Greeting, Open, Opened, PROTOCOL, Request, Said, State, Told,
};

/// What is heard of a process without asking.
#[derive(Debug)]
pub enum Heard {
    /// Something happened; events count up by one.
    Event(u64, Told),
    /// The newest counters.
    Report(Box<Counters>),
    /// The process has ended, or the connection to it is lost; nothing more is heard.
    Gone,
}

/// A request that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// There is no process, or it is gone.
    #[error("the relay's process does not answer")]
    Gone(#[source] io::Error),
    /// It is there and says nothing, or does not even listen.
    #[error("the relay's process did not answer within {} s", after.as_secs())]
    Silent {
        /// How long it was waited for.
        after: Duration,
    },
    /// It says no.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// It is of a version of droverd that this one cannot speak with.
    #[error(
        "the relay's process is of droverd {version} and speaks version {protocol} of its \
         protocol, this agent speaks version {PROTOCOL}"
    )]
    Version {
        /// Its program.
        version: String,
        /// Its protocol.
        protocol: u32,
    },
}

type Result<T> = std::result::Result<T, ControlError>;
type Waiting = Mutex<HashMap<u64, Sender<std::result::Result<Answer, String>>>>;
type Answered = Receiver<std::result::Result<Answer, String>>;

#[derive(Debug)]
struct Shared {
    /// Also the order of what is sent.
    socket: Mutex<UnixStream>,
    waiting: Waiting,
    number: Mutex<u64>,
}

/// A connection to the process of a relay. Blocks for bounded times only. Dropping the last clone
/// leaves the process without an agent.
#[derive(Debug, Clone)]
pub struct Control(Arc<Connection>);

#[derive(Debug)]
struct Connection(Arc<Shared>);

impl Drop for Connection {
    fn drop(&mut self) {
        // The thread that listens ends by it.
        let _ = lock(&self.0.socket).shutdown(Shutdown::Both);
    }
}

/// What was said without waiting for the answer.
#[derive(Debug)]
pub struct Posted {
    answered: Answered,
    is_answered: bool,
}

impl Posted {
    /// Whether it was answered by now, so that the process has heard it. When [`Heard::Gone`] is heard that is settled. An answer is lost
    /// only where `hear` was busy for so long that the process could not say it for [`LAST_WORDS`](crate::limits::LAST_WORDS) before it
    /// ended.
    #[must_use]
    pub fn is_answered(&mut self) -> bool {
        self.is_answered |= self.answered.try_recv().is_ok();
        self.is_answered
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// Connects to a process; `hear` is called on a thread of its own, one call at a time.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn connect(
        socket: &Path,
        hear: impl FnMut(Heard) + Send + 'static,
    ) -> Result<(Self, Greeting)> {
        let connected = UnixStream::connect(socket).map_err(ControlError::Gone)?;
        let mut lines = Lines::default();
        let greeting = greeted(&connected, &mut lines)?;
        if greeting.protocol != PROTOCOL {
            let Greeting {
                version, protocol, ..
            } = greeting;
            return Err(ControlError::Version { version, protocol });
        }
        let reader = connected.try_clone().map_err(ControlError::Gone)?;
        let shared = Arc::new(Shared {
            socket: Mutex::new(connected),
            waiting: Waiting::default(),
            number: Mutex::default(),
        });
        let listening = shared.clone();
        thread::Builder::new()
            .name("carrier-hear".into())
            .spawn(move || listen(&reader, lines, &listening, hear))
            .map_err(ControlError::Gone)?;
        Ok((Self(Arc::new(Connection(shared))), greeting))
    }

    /// Asks to be told what happens after event `after`, and how the process stands.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn attach(&self, after: u64) -> Result<State> {
        match self.ask(&Request::Attach { after }, None, ANSWER)? {
            Answer::State(state) => Ok(*state),
            other => Err(unexpected(&other)),
        }
    }

    /// Has it open lanes.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn open(&self, open: Open) -> Result<Opened> {
        match self.ask(&Request::Open(open), None, OPEN_ANSWER)? {
            Answer::Opened(opened) => Ok(opened),
            other => Err(unexpected(&other)),
        }
    }

    /// Hands a connection over that begins like a lane of this migration, with its preamble, and
    /// waits until it is one.
    ///
    /// # Errors
    /// Why it was turned away, or that the process did not answer.
    pub fn hand_over(
        &self,
        preamble: &[u8],
        connection: BorrowedFd<'_>,
        until: Instant,
    ) -> std::result::Result<(), TurnedAway> {
        let request = Request::Lane {
            preamble: preamble.to_vec(),
            left: until.saturating_duration_since(Instant::now()),
        };
        match self.ask(&request, Some(connection), OPEN_ANSWER) {
            Ok(Answer::TurnedAway(turned)) => Err(turned),
            Ok(_) => Ok(()),
            Err(error) => Err(TurnedAway::new(Cause::Relay, with_sources(&error))),
        }
    }

    /// Asks for anything that is answered at once; `descriptor` goes with it.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn request(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        self.ask(request, descriptor, ANSWER).map(drop)
    }

    /// Says something without waiting for the answer.
    ///
    /// # Errors
    /// The process is gone, or does not listen.
    pub fn post(&self, request: &Request) -> Result<Posted> {
        let answered = self.send(request, None)?;
        Ok(Posted {
            answered,
            is_answered: false,
        })
    }

    fn ask(
        &self,
        request: &Request,
        descriptor: Option<BorrowedFd<'_>>,
        patience: Duration,
    ) -> Result<Answer> {
        let answer = self.send(request, descriptor)?;
        match answer.recv_timeout(patience) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reason)) => Err(ControlError::Refused { reason }),
            Err(RecvTimeoutError::Timeout) => Err(ControlError::Silent { after: patience }),
            Err(RecvTimeoutError::Disconnected) => {
                Err(ControlError::Gone(io::ErrorKind::UnexpectedEof.into()))
            }
        }
    }

    fn send(&self, request: &Request, descriptor: Option<BorrowedFd<'_>>) -> Result<Answered> {
        let shared = &self.0.0;
        let number = {
            let mut last = lock(&shared.number);
            *last += 1;
            *last
        };
        let request = request.clone();
        let line = serde_json::to_vec(&Asked { number, request });
        let mut line = line.map_err(|error| ControlError::Gone(error.into()))?;
        line.push(b'\n');
        let (answer, answered) = channel();
        lock(&shared.waiting).insert(number, answer);
        let sent = lines::send(&lock(&shared.socket), &line, descriptor);
        if let Err(error) = sent {
            lock(&shared.waiting).remove(&number);
            return Err(match error.kind() {
                io::ErrorKind::WouldBlock => ControlError::Silent { after: SEND },
                _ => ControlError::Gone(error),
            });
        }
        Ok(answered)
    }
}

fn unexpected(answer: &Answer) -> ControlError {
    let reason = format!("the relay's process answered {answer:?} to something else");
    ControlError::Refused { reason }
}

fn greeted(socket: &UnixStream, lines: &mut Lines) -> Result<Greeting> {
    let gone = ControlError::Gone;
    socket.set_write_timeout(Some(SEND)).map_err(gone)?;
    socket.set_read_timeout(Some(GREETING)).map_err(gone)?;
    let line = loop {
        if let Some(line) = lines.next().map_err(gone)? {
            break line;
        }
        match lines.fill(socket) {
            Ok(true) => {}
            Ok(false) => return Err(gone(io::ErrorKind::UnexpectedEof.into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(ControlError::Silent { after: GREETING });
            }
            Err(error) => return Err(gone(error)),
        }
    };
    socket.set_read_timeout(None).map_err(gone)?;
    match lines::decode(&line) {
        Ok(Said::Greeting(greeting)) => Ok(greeting),
        Ok(other) => Err(gone(io::Error::other(format!("no greeting: {other:?}")))),
        Err(error) => Err(gone(error)),
    }
}

fn listen(socket: &UnixStream, mut lines: Lines, shared: &Shared, mut hear: impl FnMut(Heard)) {
    let ended = loop {
        match lines.next() {
            Ok(Some(line)) => match lines::decode(&line) {
                Ok(said) => take(said, shared, &mut hear),
                Err(error) => break Err(error),
            },
            Ok(None) => match lines.fill(socket) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            },
            Err(error) => break Err(error),
        }
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "the connection to a relay's process failed");
    }
    let _ = socket.shutdown(Shutdown::Both);
    // Whoever waits learns that no answer comes.
    lock(&shared.waiting).clear();
    hear(Heard::Gone);
}

fn take(said: Said, shared: &Shared, hear: &mut impl FnMut(Heard)) {
    match said {
        Said::Answer { number, result } => {
            let waiting = lock(&shared.waiting).remove(&number);
            if let Some(waiting) = waiting {
                // One that was only posted is waited for by nobody.
                let _ = waiting.send(result);
            }
        }
        Said::Event { sequence, told } => hear(Heard::Event(sequence, told)),
        Said::Report(counters) => hear(Heard::Report(counters)),
        Said::Greeting(_) => {}
    }
}
