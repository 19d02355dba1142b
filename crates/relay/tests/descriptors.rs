//! A relay that may not have all the pipes that it could use, and what it leaves behind. Alone in
//! its program, as it counts and limits the descriptors of the whole process.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{
    DataPath, LaneListener, Order, Relay, Security, Settings, Sizes, Token, open_lanes,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const PATIENCE: Duration = Duration::from_secs(20);
const TOKEN: Token = Token([7; 32]);
const CHANNELS: u16 = 4;
/// A quarter of them in pipes of two descriptors are fewer than a full window of all channels.
const DESCRIPTORS: u64 = 160;
const SETTINGS: Settings = Settings {
    sizes: Sizes {
        chunk_bytes: 16 << 10,
        window: 32,
    },
    channels_max: CHANNELS,
    outage_limit: Duration::ZERO,
    pass_through: true,
    verify: false,
    reduction: None,
};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn carry_all(source: &Relay, near: &std::path::Path, far: &UnixListener) {
    let bytes: Vec<u8> = (0..2_000_000u32).map(|n| (n >> 3) as u8).collect();
    let streams: Vec<_> = (0..CHANNELS)
        .map(|_| {
            let near = UnixStream::connect(near).unwrap();
            (near, far.accept().unwrap().0)
        })
        .collect();
    thread::scope(|scope| {
        for (near, _) in &streams {
            scope.spawn(|| {
                (&mut &*near).write_all(&bytes).unwrap();
                near.shutdown(Shutdown::Write).unwrap();
            });
        }
        // Nobody reads until there are no more pipes to be had.
        let until = Instant::now() + PATIENCE;
        while matches!(
            source.report().data_path,
            DataPath::Splice { except: None, .. }
        ) {
            assert!(Instant::now() < until, "every chunk found a pipe");
            thread::yield_now();
        }
        for (_, far) in &streams {
            far.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut seen = Vec::new();
            (&mut &*far).read_to_end(&mut seen).unwrap();
            assert!(seen == bytes, "bytes differ");
        }
    });
}

#[test]
fn chunks_without_a_pipe_are_copied_and_every_descriptor_is_given_back() {
    let limit = getrlimit(Resource::Nofile);
    let few = Rlimit {
        current: Some(DESCRIPTORS),
        ..limit
    };
    setrlimit(Resource::Nofile, few).unwrap();
    let before = descriptors();
    {
        let directory = tempfile::tempdir().unwrap();
        let (near, far_path) = (directory.path().join("near"), directory.path().join("far"));
        let source = Relay::source(SETTINGS, &near, |_| {}).unwrap();
        let destination = Arc::new(Relay::destination(SETTINGS, &far_path, |_| {}).unwrap());
        let listener = LaneListener::hold(0).unwrap();
        let id = MigrationId::from_bytes([3; 16]);
        let expected = listener.expect(id, TOKEN, Security::Plain, &destination);
        assert!(expected.offer(&[Ipv4Addr::LOCALHOST.into()]).is_empty());
        let far = UnixListener::bind(&far_path).unwrap();
        let end = || PathEnd {
            interface: "lo".into(),
            address: Ipv4Addr::LOCALHOST.into(),
        };
        let path = Path {
            id: PathId(0),
            source: end(),
            destination: end(),
            rate: None,
            mtu: 65536,
        };
        let opened = open_lanes(&Order {
            migration: id,
            token: TOKEN,
            security: Security::Plain,
            port: listener.port(),
            paths: vec![path],
            lanes_per_path: 2,
            lanes_most: 2,
        });
        assert_eq!(opened.failures, vec![]);
        for (plan, lane) in opened.lanes {
            source.add_lane(plan.lane, plan.path, lane).unwrap();
        }
        carry_all(&source, &near, &far);
        let path = source.report().data_path.to_string();
        assert!(path.starts_with("splice, partly copy: "), "{path}");
        source.cut();
        destination.cut();
    }
    let until = Instant::now() + PATIENCE;
    while descriptors() > before {
        assert!(Instant::now() < until, "{} of {before}", descriptors());
        thread::yield_now();
    }
}
