//! Migrations of which every channel is looked at on its way.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use drover_hypervisor::{MigrationAddress, MigrationSettings, MigrationStatus, Movable, RunState};
use drover_qstream::{self as qstream, Found, Kind};

use crate::common::pair::{Pair, SLOW};
use crate::common::{PATIENCE, state, status};

/// A channel that has ended: all its bytes, and what was found in them.
pub struct Seen {
    pub bytes: Vec<u8>,
    pub found: Vec<Found>,
    pub kind: Kind,
}

/// Takes each connection to one socket to another, and looks at what the source sends; each is told of at its end.
fn watched(from: &Path, to: &Path) -> Receiver<Seen> {
    let listener = UnixListener::bind(from).unwrap();
    let (tell, seen) = channel();
    let to: PathBuf = to.to_owned();
    thread::spawn(move || {
        for source in listener.incoming() {
            let (source, tell) = (source.unwrap(), tell.clone());
            let destination = UnixStream::connect(&to).unwrap();
            thread::spawn(move || tell.send(carried(&source, &destination).unwrap()));
        }
    });
    seen
}

fn carried(mut source: &UnixStream, mut destination: &UnixStream) -> io::Result<Seen> {
    let back = (destination.try_clone()?, source.try_clone()?);
    thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
    let mut channel = qstream::Channel::new(4096);
    let (mut bytes, mut found) = (Vec::new(), Vec::new());
    // Pieces that fit neither headers nor pages.
    let mut buffer = vec![0; 10_007];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            destination.shutdown(Shutdown::Write)?;
            let kind = channel.kind();
            return Ok(Seen { bytes, found, kind });
        }
        channel.feed(&buffer[..read], &mut |what| found.push(what));
        bytes.extend_from_slice(&buffer[..read]);
        destination.write_all(&buffer[..read])?;
    }
}

/// Begins to migrate, with each channel watched.
async fn begun(pair: &Pair, settings: &MigrationSettings) -> Receiver<Seen> {
    pair.prepare(settings).await;
    let MigrationAddress::Unix(to) = pair.place.socket() else {
        panic!("it is a socket");
    };
    let from = to.with_extension("watched");
    let seen = watched(&from, &to);
    pair.source
        .migrate(&MigrationAddress::Unix(from))
        .await
        .unwrap();
    seen
}

/// What was seen of so many channels, which have ended.
fn ended(seen: &Receiver<Seen>, channels: usize) -> Vec<Seen> {
    let each = (0..channels).map(|_| seen.recv_timeout(PATIENCE).unwrap());
    each.collect()
}

/// Migrates, and what was seen of each channel: the main one, and those of multifd.
pub async fn migrated(pair: &Pair, settings: &MigrationSettings) -> Vec<Seen> {
    let (mut source, mut destination) = (pair.source.events(), pair.destination.events());
    let seen = begun(pair, settings).await;
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;
    ended(&seen, 1 + settings.channels as usize)
}

/// Migrates by postcopy nearly from the beginning on, and what was seen of the one channel.
pub async fn followed(pair: &Pair) -> Seen {
    let (mut source, mut destination) = (pair.source.events(), pair.destination.events());
    let settings = MigrationSettings {
        max_bandwidth: SLOW,
        postcopy: true,
        ..MigrationSettings::default()
    };
    let seen = begun(pair, &settings).await;
    status(&mut source, MigrationStatus::Active).await;
    pair.source.start_postcopy().await.unwrap();
    state(&pair.destination, &[RunState::Paused]).await;
    pair.destination.resume().await.unwrap();
    status(&mut source, MigrationStatus::Completed).await;
    status(&mut destination, MigrationStatus::Completed).await;
    ended(&seen, 1).remove(0)
}
