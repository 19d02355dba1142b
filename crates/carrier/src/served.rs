//! The relay that a process is for, and what becomes of it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use drover_relay::limits::PATHS_KEPT;
use drover_relay::{
    Acceptor, Behind, ByeCode, DigestKey, Disks, Encryption, End, Event, Identity, NoFingerprint,
    Order, Relay, Report, SealKey, Security, Settings, Sizes, Sockets, Tls, Token, open_lanes,
};
use drover_types::{ByteRate, MigrationId, NicPlacement, Path, PathEnd, PathId, with_sources};

use crate::inbox::{Inbox, News};
use crate::limits::{LANES_OPENING, LIMITS_HELD};
use crate::protocol::{
    Answer, BaselineFile, Failure, HeldLimit, Keys, Open, Opened, Side, Start, State, StoredFile,
};

/// Tells when the last thread of the relay has let go of it.
struct Watch(Arc<Inbox>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.push(News::RelayGone);
    }
}

/// Whom a request that takes time is answered to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) connection: u64,
    pub(crate) number: u64,
}

/// The one relay of a process.
#[derive(Debug)]
pub(crate) struct Served {
    inbox: Arc<Inbox>,
    relay: Option<Arc<Relay>>,
    /// The counters of one that was let go of, and what goes on behind it.
    last: Option<(Report, Behind)>,
    /// Who lets lanes in, once they are expected.
    acceptor: Option<Arc<Acceptor>>,
    state: State,
    /// Requests that are being carried out beside the process' own thread.
    beside: Arc<AtomicUsize>,
    gone: bool,
}

impl Served {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        let state = State {
            start: None,
            ended: None,
            finished: false,
            paths: Vec::new(),
            limits: Vec::new(),
        };
        Self {
            inbox,
            relay: None,
            last: None,
            acceptor: None,
            state,
            beside: Arc::default(),
            gone: true,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Whether nothing of a relay is left: no thread, no socket.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn note_gone(&mut self) {
        self.gone = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.ended.is_some()
    }

    /// Whether it has nothing to say to the peer any more. One that has delivered everything says
    /// farewell for a moment when it is closed.
    pub(crate) fn is_silent(&self) -> bool {
        self.has_ended() && !self.state.finished
    }

    /// The relay has told something.
    pub(crate) fn note(&mut self, event: &Event) {
        if let Event::Ended { end, reason } = event {
            self.state.finished = *end == End::Finished;
            self.state.ended.get_or_insert_with(|| reason.clone());
        }
    }

    pub(crate) fn report(&self) -> Option<Report> {
        self.relay.as_ref().map(|relay| relay.report())
    }

    /// The counters of a relay that was let go of and that stored or recorded pages: what is not written by now is left out.
    pub(crate) fn last_report(&self) -> Option<Report> {
        let (mut report, behind) = self.last.clone()?;
        behind.report_end(report.stored.as_mut()?);
        Some(report)
    }

    pub(crate) fn encryption(&self) -> Option<Encryption> {
        self.acceptor.as_ref()?.encryption()
    }

    pub(crate) fn start(&mut self, start: Start) -> Result<Answer, String> {
        if self.state.start.is_some() {
            return Err("this process carries already".into());
        }
        let settings = Settings {
            sizes: Sizes {
                chunk_bytes: start.chunk_bytes,
                window: start.window,
            },
            channels_max: start.channels_max,
            outage_limit: start.outage_limit,
            pass_through: start.pass_through,
            verify: start.verify,
            reduction: start.reduction,
        };
        let watch = Watch(self.inbox.clone());
        let tell = move |event| watch.0.push(News::Event(event));
        let sockets = Sockets {
            memory: &start.socket,
            control: start.control.as_deref(),
            disks: start.disks.as_ref().map(|disks| Disks {
                socket: &disks.socket,
                count: disks.count,
            }),
        };
        let relay = match start.side {
            Side::Source => Relay::source(settings, sockets, tell),
            Side::Destination => Relay::destination(settings, sockets, tell),
        };
        let relay = relay.map_err(|error| with_sources(&error))?;
        relay.place(start.nics.clone());
        self.gone = false;
        self.relay = Some(Arc::new(relay));
        self.state.start = Some(start);
        Ok(Answer::Done)
    }

    fn running(&self) -> Result<(&Arc<Relay>, MigrationId), String> {
        match (&self.relay, &self.state.start) {
            (Some(relay), Some(start)) => Ok((relay, start.migration)),
            _ => Err("this process carries nothing".into()),
        }
    }

    /// Runs something that waits for the other host, and answers when it is done.
    fn beside(
        &self,
        asker: Asker,
        work: impl FnOnce() -> Result<Answer, String> + Send + 'static,
    ) -> Result<(), String> {
        let (inbox, counter) = (self.inbox.clone(), self.beside.clone());
        if counter.fetch_add(1, Ordering::AcqRel) >= LANES_OPENING {
            counter.fetch_sub(1, Ordering::AcqRel);
            return Err(format!("{LANES_OPENING} lanes are being opened already"));
        }
        let started = thread::Builder::new().name("carrier-open".into());
        let started = started.spawn(move || {
            let result = work();
            counter.fetch_sub(1, Ordering::AcqRel);
            let Asker { connection, number } = asker;
            inbox.push(News::Answer {
                connection,
                number,
                result,
            });
        });
        started.map(drop).map_err(|error| {
            self.beside.fetch_sub(1, Ordering::AcqRel);
            format!("cannot start a thread: {error}")
        })
    }

    /// Opens lanes; answers later.
    pub(crate) fn open(&mut self, asker: Asker, open: Open) -> Result<(), String> {
        let (relay, migration) = self.running()?;
        bounded(open.paths.len())?;
        let order = Order {
            migration,
            token: Token(open.keys.token),
            security: security(&open.keys)?,
            port: open.port,
            paths: open.paths.clone(),
            lanes_per_path: open.lanes_per_path,
            lanes_most: open.lanes_most,
        };
        let relay = relay.clone();
        self.beside(asker, move || {
            let opened = open_lanes(&order);
            let failures: Vec<Failure> = opened.failures.iter().map(Into::into).collect();
            let Some((_, first)) = opened.lanes.first() else {
                let reasons: Vec<String> = failures.iter().map(ToString::to_string).collect();
                return Err(format!("no lane could be opened: {}", reasons.join("; ")));
            };
            let encryption = first.encryption();
            let kept = relay.keep_lanes(order, opened);
            kept.map_err(|error| format!("no thread could be started to keep lanes: {error}"))?;
            Ok(Answer::Opened(Opened {
                encryption,
                failures,
            }))
        })?;
        self.state.paths = open.paths;
        Ok(())
    }

    /// Lanes are wanted on this path, too. Of a path that is known the first word counts.
    pub(crate) fn add_path(&mut self, path: Path) -> Result<Answer, String> {
        let (relay, _) = self.running()?;
        if self.state.paths.iter().any(|known| known.id == path.id) {
            return Ok(Answer::Done);
        }
        bounded(self.state.paths.len() + 1)?;
        relay.add_path(path.clone());
        self.state.paths.push(path);
        Ok(Answer::Done)
    }

    pub(crate) fn place(&self, nics: Vec<NicPlacement>) -> Result<Answer, String> {
        self.running()?.0.place(nics);
        Ok(Answer::Done)
    }

    pub(crate) fn add_stored(
        &self,
        stored: &StoredFile,
        file: Option<OwnedFd>,
    ) -> Result<Answer, String> {
        let file = file.ok_or("no file came with it")?;
        let (relay, _) = self.running()?;
        let added = relay.add_stored(drover_relay::StoredFile {
            file: file.into(),
            key: DigestKey::new(stored.key),
            seal: stored.seal.map(SealKey::new),
            fill: stored.fill,
            waiting_bytes: stored.waiting_bytes,
        });
        added.map_err(|error| with_sources(&error))?;
        Ok(Answer::Done)
    }

    pub(crate) fn add_baseline(
        &self,
        baseline: &BaselineFile,
        file: Option<OwnedFd>,
    ) -> Result<Answer, String> {
        let file = file.ok_or("no file came with it")?;
        let (relay, _) = self.running()?;
        let added = relay.add_baseline(drover_relay::BaselineFile {
            file: file.into(),
            seal: SealKey::new(baseline.seal),
            waiting_bytes: baseline.waiting_bytes,
        });
        added.map_err(|error| with_sources(&error))?;
        Ok(Answer::Done)
    }

    pub(crate) fn link_lost(&self, path: PathId, reason: &str) -> Result<Answer, String> {
        self.running()?.0.link_lost(path, reason);
        Ok(Answer::Done)
    }

    pub(crate) fn link_back(&mut self, path: PathId, source: PathEnd) -> Result<Answer, String> {
        self.running()?.0.link_back(path, source.clone());
        let dials = self.state.start.as_ref().map(|start| start.side) == Some(Side::Source);
        let known = self.state.paths.iter_mut().find(|known| known.id == path);
        if let Some(known) = known.filter(|_| dials) {
            known.source = source;
        }
        Ok(Answer::Done)
    }

    pub(crate) fn limit(
        &mut self,
        path: Option<PathId>,
        rate: Option<ByteRate>,
    ) -> Result<Answer, String> {
        let held = &self.state.limits;
        let (relay, _) = self.running()?;
        match rate {
            _ if held.iter().any(|held| held.path == path) => {}
            Some(_) if held.len() >= LIMITS_HELD => {
                return Err(format!("{LIMITS_HELD} limits are held already"));
            }
            Some(_) => {}
            None => return Ok(Answer::Done),
        }
        relay.limit(path, rate);
        let held = &mut self.state.limits;
        held.retain(|held| held.path != path);
        held.extend(rate.map(|rate| HeldLimit { path, rate }));
        Ok(Answer::Done)
    }

    /// Lanes with these keys will come.
    pub(crate) fn expect(&mut self, keys: &Keys) -> Result<Answer, String> {
        let (relay, _) = self.running()?;
        if self.acceptor.is_some() {
            return Err("its lanes are expected already".into());
        }
        let acceptor = Acceptor::new(Token(keys.token), security(keys)?, relay);
        self.acceptor = Some(Arc::new(acceptor));
        Ok(Answer::Done)
    }

    /// Takes a connection over that may be a lane; answers later.
    pub(crate) fn lane(
        &self,
        asker: Asker,
        preamble: &[u8],
        connection: Option<OwnedFd>,
        until: Instant,
    ) -> Result<(), String> {
        self.running()?;
        let acceptor = self.acceptor.clone();
        let acceptor = acceptor.ok_or("this process expects no lane")?;
        let connection = connection.ok_or("no connection came with it")?;
        let preamble = preamble.try_into();
        let preamble = preamble.map_err(|_| "a preamble of another size")?;
        self.beside(asker, move || {
            let taken = acceptor.take_over(connection, preamble, until);
            Ok(taken.map_or_else(Answer::TurnedAway, |()| Answer::Done))
        })
    }

    pub(crate) fn close(&self, finished: bool) {
        if let Some(relay) = &self.relay {
            relay.close(if finished {
                ByeCode::Finished
            } else {
                ByeCode::Aborted
            });
        }
    }

    /// When this returns no further byte reaches QEMU.
    pub(crate) fn cut(&mut self) {
        if let Some(relay) = &self.relay {
            relay.cut();
            let cut = || "its agent cut the session off".to_owned();
            self.state.ended.get_or_insert_with(cut);
        }
    }

    /// Nobody is there to say anything else.
    pub(crate) fn note_end(&mut self, reason: String) {
        self.state.ended.get_or_insert(reason);
    }

    /// Has the relay end as soon as its threads have.
    pub(crate) fn let_go(&mut self) {
        if let Some(relay) = self.relay.take() {
            self.last = relay.behind().map(|behind| (relay.report(), behind));
            relay.cut();
        }
    }
}

fn bounded(paths: usize) -> Result<(), String> {
    if paths > PATHS_KEPT {
        return Err(format!("{paths} paths, {PATHS_KEPT} are possible"));
    }
    Ok(())
}

fn security(keys: &Keys) -> Result<Security, String> {
    let Some(tls) = &keys.tls else {
        return Ok(Security::Plain);
    };
    let identity = Identity::of(tls.certificate.clone(), tls.key.clone());
    let peer = tls.peer.parse();
    let peer = peer.map_err(|error: NoFingerprint| error.to_string())?;
    let tls = Tls::new(&identity, peer).map_err(|error| error.to_string())?;
    Ok(Security::Tls(tls))
}
