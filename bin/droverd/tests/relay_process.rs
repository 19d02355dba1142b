//! The process of a relay as an agent starts it.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

#[path = "support/scripts.rs"]
mod scripts;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use drover_carrier::{Control, Greeting, Heard, Place, Request, Side, Start};
use drover_types::MigrationId;

const PATIENCE: Duration = Duration::from_secs(60);

struct Process {
    place: Place,
    child: Child,
    _directory: tempfile::TempDir,
}

fn start() -> Process {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::at(directory.path().join("relay"));
    let listener = place.make().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_droverd"))
        .arg("relay")
        .arg(place.directory())
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(place.open_log().unwrap())
        .process_group(0)
        .spawn()
        .unwrap();
    Process {
        place,
        child,
        _directory: directory,
    }
}

impl Process {
    fn connect(&self) -> (Control, Greeting, Receiver<Heard>) {
        let (tell, heard) = channel();
        let hear = move |what| drop(tell.send(what));
        let (control, greeting) = Control::connect(&self.place.socket(), hear).unwrap();
        assert!(!control.attach(0).unwrap().lives());
        (control, greeting, heard)
    }
}

#[test]
fn a_relays_process_says_who_it_is_and_leaves_nothing_when_it_was_told_to_end() {
    let mut process = start();
    let (control, greeting, heard) = process.connect();
    assert_eq!(greeting.pid, process.child.id());
    assert_eq!(greeting.version, env!("CARGO_PKG_VERSION"));
    let record = process.place.record().unwrap().unwrap();
    assert_eq!(
        (record.pid, record.start_time),
        (greeting.pid, greeting.start_time)
    );
    assert!(record.is_running());
    let name = std::fs::read_to_string(format!("/proc/{}/comm", greeting.pid)).unwrap();
    assert_eq!(name.trim(), "droverd-relay");
    // So that the package is not removed meanwhile.
    let told = scripts::told_by("working relay");
    assert!(told.contains(&greeting.pid.to_string()), "{told:?}");
    let close = Request::Close { finished: false };
    control.request(&close, None).unwrap();
    assert!(matches!(heard.recv_timeout(PATIENCE), Ok(Heard::Gone)));
    assert!(process.child.wait().unwrap().success());
    assert!(!process.place.directory().exists());
}

#[test]
fn the_death_of_a_relays_process_is_heard_and_its_files_can_be_removed() {
    let mut process = start();
    let (_control, _, heard) = process.connect();
    process.child.kill().unwrap();
    assert!(matches!(heard.recv_timeout(PATIENCE), Ok(Heard::Gone)));
    let record = process.place.record().unwrap().unwrap();
    record.end(PATIENCE).unwrap();
    process.child.wait().unwrap();
    assert!(!record.is_running());
    process.place.remove().unwrap();
}

/// A strict one, so that other tests of guests that move do not matter.
const LATENCY_US: u32 = 3;

/// What all requests of this machine together come to, in microseconds, as its kernel says.
fn latency() -> Option<i32> {
    let mut value = [0; 4];
    let mut device = File::open("/dev/cpu_dma_latency").ok()?;
    device.read_exact(&mut value).ok()?;
    Some(i32::from_ne_bytes(value))
}

#[test]
fn a_relays_process_that_is_killed_lets_processors_sleep_again() {
    let wanted = LATENCY_US as i32;
    match latency() {
        None => return eprintln!("skipped, because this machine's kernel tells no CPU latency"),
        Some(before) if before <= wanted => {
            return eprintln!("skipped, because somebody holds processors to {before} us");
        }
        Some(_) => {}
    }
    let mut process = start();
    let (control, _, heard) = process.connect();
    let carry = Start {
        migration: MigrationId::from_bytes([3; 16]),
        side: Side::Source,
        socket: process.place.qemu_socket(),
        control: None,
        disks: None,
        chunk_bytes: 16 << 10,
        window: 6,
        channels_max: 4,
        outage_limit: PATIENCE,
        pass_through: false,
        verify: false,
        reduction: None,
        patience: PATIENCE,
        nics: Vec::new(),
        cpu_latency_us: Some(LATENCY_US),
        memo: String::new(),
    };
    control.request(&Request::Start(carry), None).unwrap();
    assert_eq!(latency(), Some(wanted));
    process.child.kill().unwrap();
    process.child.wait().unwrap();
    while !matches!(heard.recv_timeout(PATIENCE).unwrap(), Heard::Gone) {}
    assert!(latency().unwrap() > wanted);
    process.place.remove().unwrap();
}

#[test]
fn by_hand_a_relays_process_does_nothing_and_says_why() {
    let output = Command::new(env!("CARGO_BIN_EXE_droverd"))
        .args(["relay", "/nowhere"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("of no use by hand"), "{said}");
}
