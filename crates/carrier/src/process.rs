//! The process of one relay: speaks with one agent at a time, and ends when it is no longer needed.
//!
//! One thread does all of this and waits for nothing but its sockets, so that whatever QEMU or the
//! other host do, the agent is answered.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drover_relay::Report;
use drover_relay::limits::{ACCEPT_PAUSE, HANDSHAKE_TIMEOUT};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agent::Agent;
use crate::history::History;
use crate::inbox::{Inbox, News};
use crate::latency::Awake;
use crate::limits;
use crate::protocol::{
    Answer, Asked, Counters, Greeting, Latency, PROTOCOL, Request, Said, Start, Told,
};
use crate::record::{self, Place, Record};
use crate::served::{Asker, Served};

/// Serves on `listener`, which [`Place::make`] has made, until the relay is over. Blocks. `version`
/// is the program's; the host's root directory is `root`.
///
/// # Errors
/// The process' files cannot be written, or its sockets fail; the relay is closed then.
pub fn run(place: &Place, listener: &UnixListener, version: &str, root: &Path) -> io::Result<()> {
    let (record, _) = record::own()?;
    place.write(&record)?;
    let mut process = Process::new(listener, (version, root), record)?;
    let served = process.serve();
    drop(process);
    place.remove()?;
    served
}

struct Process<'a> {
    listener: &'a UnixListener,
    version: &'a str,
    root: &'a Path,
    record: Record,
    began: Instant,
    served: Served,
    inbox: Arc<Inbox>,
    history: History,
    /// What is asked of the host's processors while bytes are carried.
    awake: Option<Awake>,
    /// What had been asked of them until the session was over.
    rested: Option<Latency>,
    agent: Option<Agent>,
    connections: u64,
    alone_since: Option<Instant>,
    report_at: Instant,
    /// Since when the session is being closed for good.
    closing: Option<Instant>,
}

impl<'a> Process<'a> {
    fn new(
        listener: &'a UnixListener,
        (version, root): (&'a str, &'a Path),
        record: Record,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let inbox = Inbox::new()?;
        let now = Instant::now();
        Ok(Self {
            listener,
            version,
            root,
            record,
            began: now,
            served: Served::new(inbox.clone()),
            inbox,
            history: History::default(),
            awake: None,
            rested: None,
            agent: None,
            connections: 0,
            alone_since: Some(now),
            report_at: now,
            closing: None,
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        while !self.is_over() {
            self.wait()?;
            self.accept();
            self.hear();
            self.take_news();
            self.look_at_the_clock();
            self.speak();
        }
        self.last_words();
        Ok(())
    }

    fn is_over(&self) -> bool {
        let late = |since: &Instant| since.elapsed() >= limits::CLOSING;
        self.closing
            .as_ref()
            .is_some_and(|since| self.served.is_gone() || late(since))
    }

    /// Waits until something is there, or due.
    fn wait(&self) -> io::Result<()> {
        let due = self.next_at().map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let wake = self.inbox.wake();
        let mut all = vec![
            PollFd::new(self.listener, PollFlags::IN),
            PollFd::new(&wake, PollFlags::IN),
        ];
        if let Some(agent) = &self.agent {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, agent.is_behind());
            all.push(PollFd::from_borrowed_fd(agent.socket().as_fd(), flags));
        }
        match poll(&mut all, due.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn next_at(&self) -> Option<Instant> {
        let report = self.wants_reports().then_some(self.report_at);
        let alone = self.alone_since.map(|since| since + self.patience());
        let closing = self.closing.map(|since| {
            let said = since + limits::FAREWELL;
            if said > Instant::now() {
                said
            } else {
                since + limits::CLOSING
            }
        });
        let alone = alone.filter(|_| self.closing.is_none());
        [report, alone, closing].into_iter().flatten().min()
    }

    fn wants_reports(&self) -> bool {
        self.agent.as_ref().is_some_and(Agent::is_attached) && self.closing.is_none()
    }

    fn patience(&self) -> Duration {
        let start = self.served.state().start.as_ref();
        start.map_or(limits::BEGIN, |start| start.patience)
    }

    /// A new agent replaces the old one.
    fn accept(&mut self) {
        let accepted = self.listener.accept();
        let accepted = accepted.and_then(|(socket, _)| Agent::new(self.connections + 1, socket));
        let mut agent = match accepted {
            Ok(agent) => agent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                // A host without descriptors or memory for the moment: the session goes on.
                tracing::warn!(%error, "no agent could be let in");
                return std::thread::sleep(ACCEPT_PAUSE);
            }
        };
        self.connections += 1;
        agent.say(&Said::Greeting(Greeting {
            protocol: PROTOCOL,
            version: self.version.to_owned(),
            pid: self.record.pid,
            start_time: self.record.start_time,
        }));
        self.agent = Some(agent);
        self.alone_since = None;
    }

    /// Carries out what the agent asks for.
    fn hear(&mut self) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        let mut lives = agent.receive();
        while lives {
            match agent.next() {
                Ok(Some(asked)) => self.answer(&mut agent, asked),
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "the agent does not speak as agents do");
                    lives = false;
                }
            }
        }
        self.keep(agent, lives);
    }

    fn keep(&mut self, agent: Agent, lives: bool) {
        if lives {
            self.agent = Some(agent);
        } else {
            self.alone_since = Some(Instant::now());
        }
    }

    fn answer(&mut self, agent: &mut Agent, asked: Asked) {
        let Asked { number, request } = asked;
        let asker = Asker {
            connection: agent.connection,
            number,
        };
        let result = match request {
            Request::Attach { after } => {
                agent.attached_after(after);
                let state = Box::new(self.served.state().clone());
                agent.answer(number, Ok(Answer::State(state)));
                self.report(agent);
                return;
            }
            Request::Start(start) => self.start(start),
            Request::Open(open) => match self.served.open(asker, open) {
                Ok(()) => return, // answered when it is done
                Err(reason) => Err(reason),
            },
            Request::Expect(keys) => self.served.expect(&keys),
            Request::Lane { preamble, left } => {
                let until = Instant::now() + left.min(HANDSHAKE_TIMEOUT);
                let connection = agent.descriptor();
                match self.served.lane(asker, &preamble, connection, until) {
                    Ok(()) => return, // answered when it has proved who it is
                    Err(reason) => Err(reason),
                }
            }
            Request::AddPath { path } => self.served.add_path(path),
            Request::LinkLost { path, reason } => self.served.link_lost(path, &reason),
            Request::LinkBack { path, source } => self.served.link_back(path, source),
            Request::Stored(stored) => {
                let file = agent.descriptor();
                self.served.add_stored(&stored, file)
            }
            Request::Baseline(baseline) => {
                let file = agent.descriptor();
                self.served.add_baseline(&baseline, file)
            }
            Request::Place { nics } => self.served.place(nics),
            Request::Limit { path, rate } => self.served.limit(path, rate),
            Request::Report => {
                if let Some(awake) = &mut self.awake {
                    awake.look();
                }
                self.report(agent);
                agent.tell(&self.history);
                Ok(Answer::Done)
            }
            Request::Close { finished } => {
                self.rest();
                self.tell_news(agent);
                self.close(finished);
                Ok(Answer::Done)
            }
            Request::Cut => {
                self.served.cut();
                self.rest();
                self.tell_news(agent);
                Ok(Answer::Done)
            }
        };
        agent.answer(number, result);
    }

    /// Bytes are carried from here on, by processors that wake quickly.
    fn start(&mut self, start: Start) -> Result<Answer, String> {
        let wanted = start.cpu_latency_us;
        let started = self.served.start(start)?;
        self.awake = Some(Awake::new(self.root, wanted));
        Ok(started)
    }

    /// Nothing is carried any more: the host's processors may sleep as they like.
    fn rest(&mut self) {
        if let Some(awake) = self.awake.take() {
            self.rested = Some(awake.end());
        }
    }

    fn close(&mut self, finished: bool) {
        self.rest();
        self.closing.get_or_insert_with(Instant::now);
        self.served.close(finished);
        if self.served.is_silent() {
            self.served.let_go();
        }
    }

    fn take_news(&mut self) {
        for news in self.inbox.take() {
            match news {
                News::Event(event) => {
                    self.served.note(&event);
                    if self.served.has_ended() {
                        self.rest();
                    }
                    self.history.push(Told::Relay(event));
                    if self.served.is_silent() && self.closing.is_some() {
                        self.served.let_go();
                    }
                }
                News::Answer {
                    connection,
                    number,
                    result,
                } => {
                    self.answer_late(connection, number, result);
                }
                News::RelayGone => self.served.note_gone(),
            }
        }
    }

    /// Answers what took time, with the counters that it changed.
    fn answer_late(&mut self, connection: u64, number: u64, result: Result<Answer, String>) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        // One that is gone does not wait for an answer any more.
        if agent.connection == connection {
            self.tell_news(&mut agent);
            agent.answer(number, result);
        }
        self.agent = Some(agent);
    }

    /// Tells what the agent has not heard of yet, after the counters as they are by now; these only if it
    /// has read all that was said before, so that many answers at once bring one report, and not as many.
    fn tell_news(&self, agent: &mut Agent) {
        if !agent.is_behind() {
            self.report(agent);
        }
        agent.tell(&self.history);
    }

    fn report(&self, agent: &mut Agent) {
        if let Some(relay) = self.served.report() {
            self.count(agent, relay);
        }
    }

    fn count(&self, agent: &mut Agent, relay: Report) {
        let Ok((_, usage)) = record::own() else {
            return;
        };
        let latency = self.awake.as_ref().map(Awake::told);
        agent.say(&Said::Report(Box::new(Counters {
            at: self.began.elapsed(),
            relay,
            encryption: self.served.encryption(),
            usage,
            latency: latency.or(self.rested.as_ref()).cloned(),
        })));
    }

    fn look_at_the_clock(&mut self) {
        let now = Instant::now();
        if let Some(since) = self.alone_since
            && self.closing.is_none()
            && now >= since + self.patience()
        {
            let lasted = now - since;
            tracing::warn!(?lasted, "no agent: closing the session");
            self.history.push(Told::Alone { lasted });
            self.close(false);
            let seconds = lasted.as_secs();
            let reason = format!("no agent came for {seconds} s: the session was closed");
            self.served.note_end(reason);
        }
        if self
            .closing
            .is_some_and(|since| now >= since + limits::FAREWELL)
        {
            self.served.let_go();
        }
        if self.wants_reports()
            && now >= self.report_at
            && let Some(mut agent) = self.agent.take()
        {
            self.report_at = now + limits::REPORT_INTERVAL;
            // The next one tells all that this one would.
            if !agent.is_behind() {
                if let Some(awake) = &mut self.awake {
                    awake.look_at_times();
                }
                self.report(&mut agent);
            }
            self.agent = Some(agent);
        }
    }

    /// Sends what can be sent. What happens while the agent does not read waits in the history, however
    /// long that is: it costs the session nothing.
    fn speak(&mut self) {
        let Some(mut agent) = self.agent.take() else {
            return;
        };
        let mut lives = agent.flush();
        while lives && !agent.is_behind() && agent.misses(&self.history) {
            self.tell_news(&mut agent);
            lives = agent.flush();
        }
        self.keep(agent, lives);
    }

    fn last_words(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            if agent.misses(&self.history) {
                self.tell_news(&mut agent);
            }
            if let Some(relay) = self.served.last_report() {
                self.count(&mut agent, relay);
            }
            agent.last_words();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn process<'a>(place: &Place, listener: &'a UnixListener) -> Process<'a> {
        let (record, _) = record::own().unwrap();
        place.write(&record).unwrap();
        Process::new(listener, ("0.0.0", Path::new("/")), record).unwrap()
    }

    /// The end of an agent that has attached.
    fn attached(process: &mut Process<'_>) -> UnixStream {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let mut agent = Agent::new(1, ours).unwrap();
        agent.attached_after(0);
        process.agent = Some(agent);
        theirs
    }

    #[test]
    fn what_an_agent_asks_for_before_it_goes_is_heard_also_where_it_hears_nothing_more() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("relay"));
        let listener = place.make().unwrap();
        let mut process = process(&place, &listener);
        let mut theirs = attached(&mut process);
        let close = Asked {
            number: 1,
            request: Request::Close { finished: true },
        };
        serde_json::to_writer(&mut theirs, &close).unwrap();
        theirs.write_all(b"\n").unwrap();
        drop(theirs);

        // There is something to tell just then, which fails.
        let lasted = Duration::from_secs(1);
        process.history.push(Told::Alone { lasted });
        process.speak();
        process.hear();
        assert!(process.closing.is_some());
        process.hear();
        assert!(process.agent.is_none() && process.alone_since.is_some());
    }

    #[test]
    fn an_agent_that_does_not_read_is_kept_and_hears_what_is_still_known_when_it_does() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::at(directory.path().join("relay"));
        let listener = place.make().unwrap();
        let mut process = process(&place, &listener);
        let mut theirs = attached(&mut process);
        let lasted = Duration::from_secs(3600);
        let happens = 100 * limits::EVENTS_KEPT as u64;
        for _ in 0..happens {
            process.history.push(Told::Alone { lasted });
            process.speak();
        }
        assert!(process.agent.as_ref().unwrap().is_behind());

        // It reads again: what is on its way, then what is known.
        theirs.set_nonblocking(true).unwrap();
        let (mut text, mut buffer) = (Vec::new(), [0; 65536]);
        let mut last = 0;
        let deadline = Instant::now() + Duration::from_secs(20);
        while last != happens {
            assert!(Instant::now() < deadline, "{last} of {happens}");
            match theirs.read(&mut buffer) {
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            process.speak();
            let end = text.iter().rposition(|byte| *byte == b'\n');
            let whole: Vec<u8> = text.drain(..end.map_or(0, |end| end + 1)).collect();
            for line in whole.split(|byte| *byte == b'\n') {
                if let Ok(Said::Event { sequence, .. }) = serde_json::from_slice(line) {
                    assert!(sequence > last, "{sequence} after {last}");
                    last = sequence;
                }
            }
        }
        let agent = process.agent.as_ref().unwrap();
        assert!(!agent.is_behind() && !agent.misses(&process.history));
    }
}
