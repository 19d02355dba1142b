//! A session that carries one channel more than QEMU's: to whoever drives QEMU on the other host.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;
mod streams;

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use drover_pagestore::{Segment, shape_within};
use drover_relay::{
    Disks, End, Event, Expected, LaneListener, Relay, Settings, Sockets, open_lanes,
};
use pair::{PATIENCE, Protected, SETTINGS, TOKEN, content, ended, exchange, id, order, securities};
use streams::{PAGE, main_channel, of_stored, rounds, settings, stored, telling, until};

/// Two relays with a socket beside QEMU's.
struct Driven {
    near: [PathBuf; 3],
    far: [UnixListener; 3],
    source: Arc<Relay>,
    destination: Arc<Relay>,
    source_events: Receiver<Event>,
    destination_events: Receiver<Event>,
    _listener: LaneListener,
    _expected: Expected,
    _directory: tempfile::TempDir,
}

fn sockets<'a>(memory: &'a Path, control: &'a Path) -> Sockets<'a> {
    Sockets {
        memory,
        control: Some(control),
        disks: None,
    }
}

/// The same, with so many disks.
fn with_disks([memory, control, socket]: &[PathBuf; 3], count: u16) -> Sockets<'_> {
    let disks = (count > 0).then_some(Disks { socket, count });
    Sockets {
        disks,
        ..sockets(memory, control)
    }
}

impl Driven {
    fn new() -> Self {
        Self::carrying(0)
    }

    /// With so many disks.
    fn carrying(disks: u16) -> Self {
        Self::with(SETTINGS, disks)
    }

    /// The same, by these settings.
    fn with(settings: Settings, disks: u16) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        let near = ["near", "near-control", "near-disks"].map(path);
        let far = ["far", "far-control", "far-disks"].map(path);
        let (tell_source, source_events) = channel();
        let (tell_destination, destination_events) = channel();
        let ends = with_disks(&near, disks);
        let source = Relay::source(settings, ends, move |e| drop(tell_source.send(e))).unwrap();
        let ends = with_disks(&far, disks);
        let tell = move |e| drop(tell_destination.send(e));
        let destination = Arc::new(Relay::destination(settings, ends, tell).unwrap());
        let listener = LaneListener::hold(0).unwrap();
        let (security, theirs) = securities(Protected::ByTls);
        let expected = listener.expect(id(), TOKEN, theirs, &destination);
        let here = std::net::Ipv4Addr::LOCALHOST.into();
        assert!(expected.offer(&[here]).is_empty());
        let opened = open_lanes(&order(listener.port(), security));
        for (plan, lane) in opened.lanes {
            source.add_lane(plan.lane, plan.path, lane).unwrap();
        }
        Self {
            far: far.map(|path| UnixListener::bind(path).unwrap()),
            near,
            source: Arc::new(source),
            destination,
            source_events,
            destination_events,
            _listener: listener,
            _expected: expected,
            _directory: directory,
        }
    }

    /// Both ends of the channel beside QEMU's.
    fn control(&self) -> (UnixStream, UnixStream) {
        let near = UnixStream::connect(&self.near[1]).unwrap();
        (patient(near), patient(self.far[1].accept().unwrap().0))
    }

    /// Both ends of the next disk's.
    fn disk(&self) -> (UnixStream, UnixStream) {
        let near = UnixStream::connect(&self.near[2]).unwrap();
        (patient(near), patient(self.far[2].accept().unwrap().0))
    }

    /// Both ends of QEMU's next channel.
    fn memory(&self) -> (UnixStream, UnixStream) {
        let near = UnixStream::connect(&self.near[0]).unwrap();
        (patient(near), patient(self.far[0].accept().unwrap().0))
    }
}

fn patient(stream: UnixStream) -> UnixStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn what_drives_qemu_has_a_channel_of_its_own_before_those_of_qemu() {
    let driven = Driven::new();
    // One of QEMU's that is too early waits.
    let early = patient(UnixStream::connect(&driven.near[0]).unwrap());
    let (driver, driven_by) = driven.control();
    (&driver).write_all(b"prepare").unwrap();
    let mut asked = [0; 7];
    (&driven_by).read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"prepare");
    let main = patient(driven.far[0].accept().unwrap().0);
    let (up, down) = (content(1, 300_000), content(2, 7_000));
    let (at_far, at_near) = exchange(&early, &main, &up, &down);
    assert!(at_far == up && at_near == down);
    let (near, far) = driven.memory();
    let (at_far, _) = exchange(&near, &far, &up, b"");
    assert!(at_far == up);
    // It was taken once, and it is not QEMU's.
    assert!(UnixStream::connect(&driven.near[1]).is_err());
    let channels = driven.source.report().session.channels;
    let channels: Vec<_> = channels.iter().map(|stats| stats.channel).collect();
    assert_eq!(channels, [1, 2]);
    // The session lasts as long as it does.
    let (at_far, at_near) = exchange(&driver, &driven_by, b"finish", b"done");
    assert_eq!((at_far, at_near), (b"finish".to_vec(), b"done".to_vec()));
    assert_eq!(ended(&driven.source_events).0, End::Finished);
    assert_eq!(ended(&driven.destination_events).0, End::Finished);
}

#[test]
fn disks_have_channels_of_their_own_before_those_of_memory_on_which_the_destination_may_speak_first()
 {
    let driven = Driven::carrying(2);
    let early = patient(UnixStream::connect(&driven.near[0]).unwrap());
    let (driver, driven_by) = driven.control();
    let mut disks = Vec::new();
    for _ in 0..2 {
        let (near, far) = driven.disk();
        (&far).write_all(b"NBDMAGIC").unwrap();
        let mut greeting = [0; 8];
        (&near).read_exact(&mut greeting).unwrap();
        assert_eq!(&greeting, b"NBDMAGIC");
        disks.push((near, far));
    }
    let main = patient(driven.far[0].accept().unwrap().0);
    let no_more = UnixStream::connect(&driven.near[2]);
    assert!(no_more.is_err(), "more disks than were agreed on");
    let (up, down) = (content(1, 300_000), content(2, 7_000));
    for (near, far) in disks.iter().chain([&(early, main)]) {
        let (at_far, at_near) = exchange(near, far, &up, &down);
        assert!(at_far == up && at_near == down);
    }
    let (at_far, _) = exchange(&driver, &driven_by, b"finish", b"");
    assert_eq!(at_far, b"finish");
    assert_eq!(ended(&driven.source_events).0, End::Finished);
}

#[test]
fn where_what_drives_qemu_has_gone_on_the_destination_disks_are_cut_off_though_no_memory_has_come()
{
    let driven = Driven::carrying(1);
    let (_driver, driven_by) = driven.control();
    let (near, _far) = driven.disk();
    drop(driven_by);
    let mut rest = Vec::new();
    // An end, whether by a close or a reset, and not by the patience's.
    let cut_off = (&near).read_to_end(&mut rest);
    let ended = cut_off.map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(ended && rest.is_empty(), "{rest:?}");
}

#[test]
fn where_what_drives_qemu_has_gone_on_the_destination_qemu_is_cut_off() {
    let driven = Driven::new();
    let (driver, driven_by) = driven.control();
    let (near, far) = driven.memory();
    (&near).write_all(b"QEVM").unwrap();
    let mut begun = [0; 4];
    (&far).read_exact(&mut begun).unwrap();
    drop(driven_by);
    let mut rest = Vec::new();
    // Both see an end, whether by a close or a reset.
    let _ = (&driver).read_to_end(&mut rest);
    let _ = (&near).read_to_end(&mut rest);
    assert_eq!(rest, b"");
    let broken = (0..1000).any(|_| (&near).write_all(&[0; 4096]).is_err());
    assert!(broken, "QEMU does not notice");
}

#[test]
fn where_what_drives_qemu_has_gone_on_the_source_the_destination_hears_it() {
    let driven = Driven::new();
    let (driver, driven_by) = driven.control();
    let _memory = driven.memory();
    driver.shutdown(Shutdown::Both).unwrap();
    drop(driver);
    let mut rest = Vec::new();
    (&driven_by).read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
}

#[test]
fn of_what_drives_qemu_and_of_disks_every_byte_crosses_and_of_memory_a_fraction() {
    let segment = Segment::in_memory(shape_within(16 << 20, PAGE as u32, false).unwrap()).unwrap();
    for (settings, tells) in [(settings(), false), (telling(settings()), true)] {
        let settings = Settings {
            channels_max: 5,
            ..settings
        };
        let driven = Driven::with(settings, 1);
        if tells {
            let file = stored(&segment, true);
            driven.destination.add_stored(file).unwrap();
        }
        let (driver, driven_by) = driven.control();
        let disk = driven.disk();
        let main = driven.memory();
        let multifd = driven.memory();
        // A disk may hold what looks like a channel of QEMU's memory.
        let (like_memory, devices, pages) = (rounds(0), main_channel(&[]), rounds(1));
        for ((near, far), sent) in [(&disk, &like_memory), (&multifd, &pages), (&main, &devices)] {
            let (at_far, at_near) = exchange(near, far, sent, b"the way back");
            assert!(at_far == *sent && at_near == b"the way back");
        }
        let (at_far, _) = exchange(&driver, &driven_by, b"finish", b"done");
        assert_eq!(at_far, b"finish");
        assert_eq!(ended(&driven.source_events).0, End::Finished);
        assert_eq!(ended(&driven.destination_events).0, End::Finished);

        let report = driven.source.report();
        let memory = (devices.len() + pages.len()) as u64;
        let counts = report.reduced.unwrap().counts;
        assert!(
            counts.raw <= memory && counts.wire * 4 < memory,
            "{counts:?}"
        );
        let crossed: u64 = report.lanes.iter().map(|lane| lane.stats.sent_bytes).sum();
        assert!(
            crossed > counts.wire + like_memory.len() as u64,
            "{crossed}"
        );
        let expanded = driven.destination.report().expanded.unwrap();
        assert_eq!(expanded.raw, memory);
        let channels = report.session.channels;
        let channels: Vec<_> = channels.iter().map(|stats| stats.channel).collect();
        let last = if tells { 4 } else { 3 };
        assert_eq!(channels, [1, 2, last]);
        if tells {
            until(|| of_stored(&driven.destination).added > 0);
        }
    }
}
