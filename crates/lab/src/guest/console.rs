//! The guest's serial port, read on whichever host the guest is.
//!
//! One thread for each stream, so that a heartbeat's time is when it arrived and not when a busy
//! runtime came round to it. A stream ends when its QEMU ends.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use drover_probe::report::{Command, Line, Verified};
use tokio::sync::Notify;

use super::assembler::Assembler;
use super::heartbeats::{Beat, Heartbeats};
use crate::limits;

/// Everything one guest said.
#[derive(Debug, Clone, Default)]
pub struct Console {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Log {
    heartbeats: Heartbeats,
    streams: Vec<Stream>,
    pages: Option<u64>,
    verified: Option<Verified>,
    unusable: Option<String>,
    told: Vec<String>,
}

impl Log {
    /// What a kernel says when it dies, if it did; else the last lines.
    fn last_words(&self) -> String {
        let dying = |line: &&String| ["Oops", "BUG:", "panic"].iter().any(|w| line.contains(w));
        let mut words: Vec<_> = self.told.iter().filter(dying).take(3).cloned().collect();
        if words.is_empty() {
            words = self.told.iter().rev().take(3).rev().cloned().collect();
        }
        words.join(" | ")
    }
}

#[derive(Debug)]
struct Stream {
    /// Gone when its QEMU has ended: a guest may move hundreds of times.
    socket: Option<UnixStream>,
    lines: Assembler,
    begun: bool,
    ended: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let log = self.log.get_mut().unwrap_or_else(PoisonError::into_inner);
        for stream in &log.streams {
            if let Some(socket) = &stream.socket {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Console {
    /// Reads also from the serial port at `path`, that of a QEMU which is there or will be.
    ///
    /// # Errors
    /// Nothing listens there in time.
    pub async fn attach(&self, path: &Path, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within;
        let socket = loop {
            match UnixStream::connect(path) {
                Ok(socket) => break socket,
                Err(error) if Instant::now() > deadline => {
                    return Err(error)
                        .with_context(|| format!("no guest's serial port at {}", path.display()));
                }
                Err(_) => tokio::time::sleep(limits::POLL).await,
            }
        };
        self.read_from(socket)
            .context("cannot read the guest's serial port")
    }

    fn read_from(&self, socket: UnixStream) -> io::Result<()> {
        let reader = socket.try_clone()?;
        let index = {
            let mut log = self.log();
            log.streams.push(Stream {
                socket: Some(socket),
                lines: Assembler::default(),
                begun: false,
                ended: false,
            });
            log.streams.len() - 1
        };
        let shared = Arc::downgrade(&self.shared);
        let read = move || {
            let mut reader = reader;
            let mut piece = [0; 4096];
            loop {
                let length = reader.read(&mut piece).unwrap_or(0);
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                take(&shared, index, Instant::now(), &piece[..length]);
                if length == 0 {
                    return;
                }
            }
        };
        thread::Builder::new()
            .name("lab-serial".to_owned())
            .spawn(read)
            .map(drop)
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.shared)
    }

    /// What follows from the heartbeats so far.
    pub fn heartbeats<T>(&self, look: impl FnOnce(&Heartbeats) -> T) -> T {
        look(&self.log().heartbeats)
    }

    /// Waits until the guest has filled its memory; how many pages.
    ///
    /// # Errors
    /// It does not, in time, or it said why it cannot.
    pub async fn wait_ready(&self) -> Result<u64> {
        self.send(Command::Greet);
        let pages = self
            .wait("filled its memory", limits::BOOT, |log| log.pages)
            .await?;
        Ok(pages)
    }

    /// Has the guest verify every page, beginning now.
    ///
    /// # Errors
    /// No answer in time, a bad page, or a heartbeat that cannot be.
    pub async fn verify(&self) -> Result<Verified> {
        let before = self.log().verified.map_or(0, |verified| verified.request);
        self.send(Command::Verify);
        let newer = |log: &Log| log.verified.filter(|verified| verified.request > before);
        let verified = self
            .wait("verified its memory", limits::VERIFY, newer)
            .await?;
        // Bad pages that others than the answer's pass have found are told by a heartbeat.
        self.wait_sequence(1, limits::VERIFY).await?;
        let log = self.log();
        if let Some(fault) = log.heartbeats.fault() {
            return Err(fault.clone().into());
        }
        if verified.bad > 0 {
            bail!(
                "{} of {} pages are bad: {}",
                verified.bad,
                verified.pages,
                log.told.join("; ")
            );
        }
        if log.pages.is_some_and(|pages| pages != verified.pages) {
            bail!(
                "the guest verified {} pages and has {:?}",
                verified.pages,
                log.pages
            );
        }
        Ok(verified)
    }

    /// Waits for the next heartbeat from the newest stream.
    ///
    /// # Errors
    /// None in time.
    pub async fn wait_heartbeat(&self, within: Duration) -> Result<()> {
        let begun = |log: &Log| log.streams.last().filter(|stream| stream.begun).map(|_| ());
        self.wait("said anything", within, begun).await
    }

    /// Waits for some moments more of heartbeats, so that a silence just begun is seen whole.
    pub async fn wait_sequence(&self, more: u64, within: Duration) -> Result<()> {
        let sequence = |log: &Log| log.heartbeats.last().map_or(0, |b| b.heartbeat.sequence);
        let wanted = sequence(&self.log()) + more;
        self.wait("gone on", within, |log| {
            (sequence(log) >= wanted).then_some(())
        })
        .await
    }

    async fn wait<T>(
        &self,
        what: &str,
        within: Duration,
        mut look: impl FnMut(&Log) -> Option<T>,
    ) -> Result<T> {
        let deadline = tokio::time::Instant::now() + within;
        loop {
            let news = self.shared.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(found) = look(&self.log()) {
                return Ok(found);
            }
            self.check_alive(what)?;
            if tokio::time::timeout_at(deadline, news).await.is_err() {
                bail!(
                    "the guest has not {what} within {} s; {}",
                    within.as_secs(),
                    self.state()
                );
            }
        }
    }

    fn check_alive(&self, what: &str) -> Result<()> {
        let log = self.log();
        if let Some(reason) = &log.unusable {
            bail!(
                "the guest's program cannot work: {}",
                reason.replace('_', " ")
            );
        }
        if !log.streams.is_empty() && log.streams.iter().all(|stream| stream.ended) {
            drop(log);
            bail!(
                "the guest's QEMU ended before the guest had {what}; {}",
                self.state()
            );
        }
        Ok(())
    }

    fn state(&self) -> String {
        let log = self.log();
        let beat = match log.heartbeats.last() {
            Some(beat) => format!("its last heartbeat was number {}", beat.heartbeat.sequence),
            None => "no heartbeat came".to_owned(),
        };
        let words = log.last_words();
        if words.is_empty() {
            beat
        } else {
            format!("{beat}; it said: {words}")
        }
    }

    fn send(&self, command: Command) {
        let log = self.log();
        for mut socket in log
            .streams
            .iter()
            .filter_map(|stream| stream.socket.as_ref())
        {
            // A stream that is just ending is not the one that will answer.
            let _ = socket.write_all(&[command.byte()]);
        }
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, Log> {
    shared.log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a piece of stream `index`; an empty one is its end.
fn take(shared: &Shared, index: usize, at: Instant, piece: &[u8]) {
    let mut log = lock(shared);
    if piece.is_empty() {
        log.streams[index].ended = true;
        log.streams[index].socket = None;
    } else {
        let spoke = log.streams[..index].iter().rfind(|stream| stream.begun);
        if let Some(before) = spoke.filter(|_| !log.streams[index].begun) {
            log.streams[index].lines = Assembler::continuing(&before.lines);
        }
        log.streams[index].begun = true;
        for line in log.streams[index].lines.feed(piece) {
            note(&mut log, at, &line);
        }
    }
    drop(log);
    shared.news.notify_waiters();
}

fn note(log: &mut Log, at: Instant, line: &str) {
    match line.parse() {
        Ok(Line::Heartbeat(heartbeat)) => log.heartbeats.push(Beat { at, heartbeat }),
        Ok(Line::Ready { pages, .. }) => log.pages = Some(pages),
        Ok(Line::Verified(verified)) => log.verified = Some(verified),
        Ok(Line::Unusable { reason }) => log.unusable = Some(reason),
        Ok(bad @ Line::Bad { .. }) => tell(log, &bad.to_string()),
        // The kernel's own words, or a line that was cut.
        Err(_) if !line.trim().is_empty() => tell(log, line.trim()),
        Err(_) => {}
    }
}

fn tell(log: &mut Log, line: &str) {
    if log.told.len() >= 100 {
        log.told.remove(0);
    }
    log.told.push(line.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_probe::report::Heartbeat;
    use std::os::unix::net::UnixListener;

    fn beat(sequence: u64) -> String {
        let heartbeat = Heartbeat {
            sequence,
            micros: sequence,
            ..Heartbeat::default()
        };
        format!("{}\n", Line::Heartbeat(heartbeat))
    }

    #[tokio::test]
    async fn a_guest_that_moves_in_the_middle_of_a_line_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let console = Console::default();
        let mut guests = Vec::new();
        for host in ["a", "b"] {
            let listener = UnixListener::bind(folder.path().join(host)).unwrap();
            console
                .attach(&folder.path().join(host), Duration::from_secs(5))
                .await
                .unwrap();
            guests.push(listener.accept().unwrap().0);
        }
        let (one, two) = (beat(1), beat(2));
        guests[0].write_all(one.as_bytes()).unwrap();
        guests[0].write_all(&two.as_bytes()[..20]).unwrap();
        // The source's bytes are in its socket before the destination's: as at a hand-off.
        let pending = |log: &Log| log.heartbeats.last().map(|_| ());
        console
            .wait("beaten", Duration::from_secs(5), pending)
            .await
            .unwrap();
        drop(guests.remove(0));
        let ended = |log: &Log| log.streams[0].ended.then_some(());
        console
            .wait("ended", Duration::from_secs(5), ended)
            .await
            .unwrap();
        guests[0].write_all(&two.as_bytes()[20..]).unwrap();
        console
            .wait_heartbeat(Duration::from_secs(5))
            .await
            .unwrap();
        let second = |log: &Log| log.heartbeats.last().filter(|b| b.heartbeat.sequence == 2);
        console
            .wait("beaten", Duration::from_secs(5), second)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_guest_that_says_why_it_cannot_work_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let listener = UnixListener::bind(&path).unwrap();
        let console = Console::default();
        console.attach(&path, Duration::from_secs(5)).await.unwrap();
        let mut guest = listener.accept().unwrap().0;
        let line = Line::Unusable {
            reason: "no_room".to_owned(),
        };
        writeln!(guest, "{line}").unwrap();
        let refused = console.wait_ready().await.unwrap_err().to_string();
        assert!(refused.contains("cannot work: no room"), "{refused}");
    }

    #[tokio::test]
    async fn a_guest_that_ends_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let listener = UnixListener::bind(&path).unwrap();
        let console = Console::default();
        console.attach(&path, Duration::from_secs(5)).await.unwrap();
        drop(listener.accept().unwrap());
        let ended = console.wait_ready().await.unwrap_err().to_string();
        assert!(ended.contains("QEMU ended"), "{ended}");
    }
}
