//! The processes of this host's relays: started, found again after a restart, ended.
//!
//! Everything here blocks, for bounded times.

mod watch;

use std::fs::{self, File};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use drover_carrier::limits::ANSWER;
use drover_carrier::{
    BaselineFile, Control, ControlError, Counters, Keys, Open, Opened, Place, Posted, Request,
    Side, Start, State, StoredFile,
};
use drover_relay::{Event, TurnedAway};
use drover_types::{ByteRate, MigrationId, NicPlacement, Path, PathEnd, PathId, with_sources};
use uuid::Uuid;

use super::held::Sockets;
use crate::limits::{RELAY_ENDED, RELAY_ENDS};
pub use watch::Doubt;
use watch::{Known, Over, Watch, end, end_own};

/// The directory of the running agent's relays, below its runtime directory.
pub const DIRECTORY: &str = "relays";

/// This very program, also when its file was replaced meanwhile: an agent speaks with relays of its
/// own version.
const PROGRAM: &str = "/proc/self/exe";

/// What a relay's process tells.
#[derive(Debug)]
pub enum News {
    /// Its relay tells something.
    Event(Event),
    /// It has ended unasked; nothing reaches QEMU any more.
    Died(String),
}

/// Why a session of before does not carry any more.
#[derive(Debug)]
pub struct NoSession {
    /// Why not.
    pub reason: String,
    /// Everything was delivered, as far as its relay still tells.
    pub finished: bool,
}

impl From<String> for NoSession {
    fn from(reason: String) -> Self {
        let finished = false;
        Self { reason, finished }
    }
}

/// Where the processes of this host's relays are.
#[derive(Debug, Clone)]
pub struct Relays {
    directory: PathBuf,
}

/// One relay in a process of its own. Dropping the last handle leaves it to itself if it was told
/// to close, and ends it otherwise.
#[derive(Debug)]
pub struct RelayProcess {
    control: Control,
    place: Place,
    pid: u32,
    known: Arc<Known>,
}

impl Relays {
    /// Those of the agent with this runtime directory.
    pub fn of(runtime: &FilePath) -> Self {
        Self {
            directory: runtime.join(DIRECTORY),
        }
    }

    fn place(&self, migration: MigrationId, side: Side) -> Place {
        let side = match side {
            Side::Source => "source",
            Side::Destination => "destination",
        };
        Place::at(self.directory.join(format!("{migration}.{side}")))
    }

    /// The longest path of a socket there, in bytes.
    pub fn socket_bytes(&self) -> usize {
        let place = self.place(MigrationId(Uuid::nil()), Side::Destination);
        let paths = [place.socket(), place.qemu_socket(), place.control_socket()];
        let bytes = paths.map(|path| path.as_os_str().len());
        bytes.into_iter().max().unwrap_or_default()
    }

    /// Where the source's process of this migration can listen, in its own folder.
    pub fn sockets(&self, migration: MigrationId) -> Sockets {
        let place = self.place(migration, Side::Source);
        Sockets {
            qemu: place.qemu_socket(),
            control: Some(place.control_socket()),
            disks: None,
        }
    }

    /// Starts a process and has it carry; `hear` is told what happens.
    ///
    /// # Errors
    /// Why not, for the operator; nothing of it is left then.
    pub fn start(
        &self,
        start: Start,
        hear: impl Fn(News) + Send + 'static,
    ) -> Result<RelayProcess, String> {
        let place = self.place(start.migration, start.side);
        let failed = |error: &dyn std::error::Error| {
            format!(
                "the relay's process was not started: {}",
                with_sources(error)
            )
        };
        let listener = place.make().map_err(|error| failed(&error))?;
        let log = place.open_log().map_err(|error| failed(&error))?;
        let child = Command::new(PROGRAM)
            .arg0("droverd")
            .arg("relay")
            .arg(place.directory())
            .current_dir("/")
            // These are the agent's own.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                remove(&place);
                return Err(failed(&error));
            }
        };
        let (process, _) = RelayProcess::connect(&place, Some(child), hear)?;
        let started = process.control.request(&Request::Start(start), None);
        started.map_err(|error| {
            process.close(false);
            with_sources(&error)
        })?;
        Ok(process)
    }

    /// Finds the process that an earlier agent started, if it still carries.
    ///
    /// # Errors
    /// Why it does not; then nothing of it reaches QEMU any more.
    pub fn find(
        &self,
        migration: MigrationId,
        side: Side,
        hear: impl Fn(News) + Send + 'static,
    ) -> Result<(RelayProcess, State), NoSession> {
        let place = self.place(migration, side);
        if !place.directory().exists() {
            return Err("its relay has ended".to_owned().into());
        }
        match RelayProcess::connect(&place, None, hear) {
            Ok((process, state)) if state.lives() => Ok((process, state)),
            Ok((process, state)) => {
                process.close(false);
                let ended = state.ended;
                let begun_not = || "its relay had not begun to carry".to_owned();
                Err(NoSession {
                    reason: ended.unwrap_or_else(begun_not),
                    finished: state.finished,
                })
            }
            Err(reason) => {
                end(&place, Duration::ZERO);
                Err(reason.into())
            }
        }
    }

    /// Ends the process of one session, if there is one, so that another can be started. When this returns
    /// nothing of it reaches QEMU any more.
    pub fn end(&self, migration: MigrationId, side: Side) {
        let place = self.place(migration, side);
        if place.directory().exists() {
            end(&place, Duration::ZERO);
        }
    }

    /// Ends every process but those that may be found, and removes what is left of earlier ones.
    pub fn end_all_but(&self, kept: &[(MigrationId, Side)]) {
        let kept: Vec<Place> = kept
            .iter()
            .map(|(id, side)| self.place(*id, *side))
            .collect();
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        for entry in entries.flatten() {
            let place = Place::at(entry.path());
            if kept.contains(&place) {
                continue;
            }
            tracing::warn!(directory = %place.directory().display(), "ending a relay of an earlier agent");
            if let Ok((control, _)) = Control::connect(&place.socket(), |_| {}) {
                // One that does not hear it is ended all the same.
                let _ = control.post(&Request::Close { finished: false });
            }
            end(&place, RELAY_ENDS);
        }
    }
}

impl RelayProcess {
    fn connect(
        place: &Place,
        child: Option<Child>,
        hear: impl Fn(News) + Send + 'static,
    ) -> Result<(Self, State), String> {
        let known = Arc::new(Known::default());
        let watch = Watch {
            place: place.clone(),
            child: Arc::new(Mutex::new(child)),
            known: known.clone(),
        };
        let ending = watch.clone();
        let heard = move |heard| watch.heard(heard, &hear);
        let connected = Control::connect(&place.socket(), heard);
        let attached = connected.and_then(|(control, greeting)| {
            let state = control.attach(0)?;
            Ok((control, greeting.pid, state))
        });
        match attached {
            Ok((control, pid, state)) => {
                known.pid.get_or_init(|| pid);
                let place = place.clone();
                let process = Self {
                    control,
                    place,
                    pid,
                    known,
                };
                Ok((process, state))
            }
            Err(error) => {
                ending.end(Duration::ZERO);
                Err(with_sources(&error))
            }
        }
    }

    /// Opens lanes, and keeps them; those that failed, and what protects the others.
    ///
    /// # Errors
    /// None could be opened, or the process does not answer.
    pub fn open(&self, open: Open) -> Result<Opened, String> {
        self.control
            .open(open)
            .map_err(|error| with_sources(&error))
    }

    /// Lanes with these keys will come.
    ///
    /// # Errors
    /// They cannot be used, or the process does not answer.
    pub fn expect(&self, keys: Keys) -> Result<(), String> {
        let expected = self.control.request(&Request::Expect(keys), None);
        expected.map_err(|error| with_sources(&error))
    }

    /// Gives it a file of pages that this host has stored.
    ///
    /// # Errors
    /// Why it cannot use it.
    pub fn add_stored(&self, file: &File, stored: StoredFile) -> Result<(), String> {
        let request = Request::Stored(stored);
        let added = self.control.request(&request, Some(file.as_fd()));
        added.map_err(|error| with_sources(&error))
    }

    /// Gives it the guest's baseline.
    ///
    /// # Errors
    /// Why it cannot use it.
    pub fn add_baseline(&self, file: &File, baseline: BaselineFile) -> Result<(), String> {
        let request = Request::Baseline(baseline);
        let added = self.control.request(&request, Some(file.as_fd()));
        added.map_err(|error| with_sources(&error))
    }

    /// Gives it a connection that begins like a lane of its migration, and has to be one by `until`.
    ///
    /// # Errors
    /// Why it became none.
    pub fn hand_over(
        &self,
        preamble: &[u8],
        connection: BorrowedFd<'_>,
        until: Instant,
    ) -> Result<(), TurnedAway> {
        self.control.hand_over(preamble, connection, until)
    }

    /// The newest counters, once there are some.
    pub fn counters(&self) -> Option<Counters> {
        self.known.counters()
    }

    /// What has happened by now that speaks against pages which it was given as stored.
    pub fn doubt(&self) -> Option<Doubt> {
        self.known.doubt()
    }

    /// Waits until the counters are those of now, for twice as long as an answer may take at most; of a process that has ended they stay,
    /// and what its end means is known then.
    pub fn refresh(&self) {
        if let Err(error) = self.control.request(&Request::Report, None) {
            tracing::debug!(
                pid = self.pid,
                error = with_sources(&error),
                "last counters stay"
            );
            if matches!(error, ControlError::Gone(_)) {
                self.known.wait_until(Over::Silent, ANSWER);
            }
        }
    }

    /// The same of one that was [told to end](Self::close). One that does not answer by then that it has heard so is doubted.
    pub fn settle(&self) {
        self.refresh();
        self.known.settle();
    }

    /// Waits until its process has ended that was [told to](Self::close), for as long as it bounds that by itself: until then it may still
    /// write to the files that it has. Whether it has.
    pub fn wait_until_gone(&self) -> bool {
        self.known.wait_until(Over::Gone, RELAY_ENDED)
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lanes are wanted on this path, too.
    pub fn add_path(&self, path: Path) {
        self.post(&Request::AddPath { path });
    }

    /// Lanes over these interfaces are to run there; of those that it knows nothing changes.
    pub fn place(&self, nics: Vec<NicPlacement>) {
        self.post(&Request::Place { nics });
    }

    /// This end of a path carries nothing any more.
    pub fn link_lost(&self, path: PathId, reason: &str) {
        let reason = reason.to_owned();
        self.post(&Request::LinkLost { path, reason });
    }

    /// This end of a path can be used again.
    pub fn link_back(&self, path: PathId, source: PathEnd) {
        self.post(&Request::LinkBack { path, source });
    }

    /// Sends no more payload than this on a path, or on all together.
    pub fn limit(&self, path: Option<PathId>, rate: Option<ByteRate>) {
        self.post(&Request::Limit { path, rate });
    }

    /// Ends the session, and then the process. One that dies before it has heard that has died unasked.
    pub fn close(&self, finished: bool) {
        self.known.close(|| self.post(&Request::Close { finished }));
    }

    fn post(&self, request: &Request) -> Option<Posted> {
        let posted = self.control.post(request);
        posted
            .inspect_err(|error| {
                // Whoever listens is told that it is gone.
                tracing::debug!(pid = self.pid, error = with_sources(error), "not heard");
            })
            .ok()
    }

    /// When this returns no further byte reaches QEMU, and what its end means is known where it has ended.
    pub fn cut(&self) {
        match self.control.request(&Request::Cut, None) {
            Ok(()) => self.known.cut(),
            Err(error) => self.kill(&error),
        }
        self.post(&Request::Close { finished: false });
    }

    /// Ends its process, which does not do what it is asked for; or has ended by itself.
    fn kill(&self, error: &ControlError) {
        let why = with_sources(error);
        tracing::warn!(pid = self.pid, why, "ending the relay's process");
        let is_gone = matches!(error, ControlError::Gone(_));
        if !is_gone {
            self.known.unanswered();
        }
        end_own(&self.place, Some(self.pid), Duration::ZERO);
        if is_gone {
            self.known.wait_until(Over::Silent, ANSWER);
        }
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        self.known.let_go();
    }
}

fn remove(place: &Place) {
    if let Err(error) = place.remove() {
        let directory = place.directory().display();
        tracing::warn!(%directory, %error, "the files of a relay's process were not removed");
    }
}
