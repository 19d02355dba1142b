//! What is decided between two relays while their lines and their processors change under them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod pair;
mod streams;

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::{Codec, Decided, Policy, Reduced, Times, Way};
use drover_types::ByteRate;
use drover_wire::ByeCode;
use pair::{Pair, Protected, pair_of};
use streams::{BEGINNING_BYTES, PAGE, by, main_channel, multifd, packet, page, until};

/// Pages of one packet.
const PAGES: usize = 37;

/// What a line carries that is slower than any codec here, which take ten times as long where they are not optimised.
const SLOW: ByteRate = ByteRate(if cfg!(debug_assertions) {
    3_000_000
} else {
    30_000_000
});

/// One that a codec is quick enough for, but not with a twenty-fifth of a processor.
const LINE: ByteRate = ByteRate(6_000_000);

/// In how many looks there is another way, and one that was half over. They are 50 ms apart at the least, and no closer than chunks: over
/// 3 MB/s 50 to 90 ms, so that what is printed says something of 500 ms only where this is optimised (`cargo test --release`).
const LOOKS: u64 = 11;

/// After how many looks there was another way, and after which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct After {
    looks: u64,
    lasted: Duration,
}

/// Two relays over which a guest is moved that always has more to send.
struct Moving {
    pair: Pair,
}

impl Moving {
    fn begin(rate: Option<ByteRate>) -> Self {
        let pair = pair_of(Protected::Plain, by(Policy::Fastest));
        pair.source.limit(None, rate);
        pair.connect();
        let mut main = UnixStream::connect(&pair.near).unwrap();
        let [main_far, near, far] = {
            let main_far = pair.far.accept().unwrap().0;
            let near = UnixStream::connect(&pair.near).unwrap();
            [main_far, near, pair.far.accept().unwrap().0]
        };
        let beginning = main_channel(&[]);
        main.write_all(&beginning[..1000]).unwrap();
        thread::spawn(move || sends(near));
        for far in [main_far, far] {
            thread::spawn(move || takes(far));
        }
        // Open until all is over.
        thread::spawn(move || takes(main));
        Self { pair }
    }

    fn reduced(&self) -> Reduced {
        self.pair.source.report().reduced.unwrap()
    }

    fn decided(&self) -> Decided {
        self.reduced().decided.unwrap()
    }

    /// Waits for so many looks.
    fn looks_on(&self, count: u64) {
        let before = self.decided().looks;
        until(|| self.decided().looks >= before + count);
    }

    /// Waits until another way is in use.
    fn looks_until(&self, accept: impl Fn(Way) -> bool) -> After {
        let (before, begun) = (self.decided().looks, Instant::now());
        let mut after = before;
        until(|| {
            let decided = self.decided();
            after = decided.looks;
            accept(decided.way)
        });
        After {
            looks: after - before,
            lasted: begun.elapsed(),
        }
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.pair.source.close(ByeCode::Aborted);
    }
}

/// Sends pages that were not there before: text, numbers, and some noise.
fn sends(mut to: UnixStream) {
    let mut packets: Vec<Vec<u8>> = (0..64)
        .map(|number: u32| {
            let pages = (0..PAGES as u32).map(|at| (0, page((number * 64 + at) * 2)));
            packet(&pages.collect())
        })
        .collect();
    let sent = to.write_all(&multifd(&[])[..BEGINNING_BYTES]);
    let mut offset = 0_u64;
    while sent.is_ok() {
        for packet in &mut packets {
            for place in packet[320..320 + 8 * PAGES].chunks_exact_mut(8) {
                place.copy_from_slice(&offset.to_be_bytes());
                offset += PAGE as u64;
            }
            if to.write_all(packet).is_err() {
                return;
            }
        }
    }
}

fn takes(mut from: UnixStream) {
    let mut buffer = vec![0; 256 << 10];
    while matches!(from.read(&mut buffer), Ok(1..)) {}
}

const fn packs(way: Way) -> bool {
    matches!(way, Way::On { codec, .. } if !matches!(codec, Codec::None))
}

#[test]
fn another_line_has_another_way_within_ten_looks() {
    let moving = Moving::begin(None);
    until(|| moving.decided().looks >= 10);
    let (mut slower, mut faster) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        moving.pair.source.limit(None, Some(SLOW));
        slower.push(moving.looks_until(packs));
        moving.looks_on(40);
        moving.pair.source.limit(None, None);
        faster.push(moving.looks_until(|way| !packs(way)));
        moving.looks_on(10);
    }
    println!("a slower line after {slower:?}, a faster one after {faster:?}");
    for looks in [slower, faster] {
        assert!(middle(looks) <= LOOKS, "{:#?}", moving.reduced());
    }
}

/// The middle one: what others want of the processors meanwhile may spoil one of them.
fn middle(mut all: Vec<After>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2].looks
}

/// A control group of this test's own, with a quota of processors' time, until it is dropped.
struct Group {
    directory: PathBuf,
    /// Of the first version, or the second one's.
    quota: &'static str,
}

/// How the kernel's first version and its second one are told a quota of so many microseconds in each 100,000, or none.
const PERIOD_US: u32 = 100_000;

impl Group {
    /// Why there is none, where it cannot be made.
    fn make() -> Result<Self, String> {
        let name = format!("drover-test-{}", std::process::id());
        let mut why = Vec::new();
        for (parent, quota) in [
            ("/sys/fs/cgroup", "cpu.max"),
            ("/sys/fs/cgroup/unified", "cpu.max"),
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us"),
            ("/sys/fs/cgroup/cpu,cpuacct", "cpu.cfs_quota_us"),
        ] {
            let directory = Path::new(parent).join(&name);
            if let Err(error) = fs::create_dir(&directory) {
                why.push(format!("{parent}: {error}"));
                continue;
            }
            let group = Self { directory, quota };
            match group.limit(None) {
                Ok(()) => return Ok(group),
                Err(error) => why.push(format!("{parent} has no {quota}: {error}")),
            }
        }
        Err(why.join("; "))
    }

    fn limit(&self, quota_us: Option<u32>) -> io::Result<()> {
        let text = match (self.quota, quota_us) {
            ("cpu.max", Some(quota)) => format!("{quota} {PERIOD_US}"),
            ("cpu.max", None) => format!("max {PERIOD_US}"),
            (_, Some(quota)) => quota.to_string(),
            (_, None) => "-1".to_owned(),
        };
        // Not made where it is not there.
        let mut file = OpenOptions::new()
            .write(true)
            .open(self.directory.join(self.quota))?;
        file.write_all(text.as_bytes())
    }

    fn enter(&self) -> io::Result<()> {
        fs::write(self.directory.join("cgroup.procs"), "0")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The group that the test's own process is to enter, which is not that of others.
const GROUP: &str = "DROVER_TEST_GROUP";

#[test]
fn processors_that_a_quota_takes_away_are_slow_ones_and_have_another_way() {
    if let Some(group) = std::env::var_os(GROUP) {
        return under_quota(Path::new(&group));
    }
    let group = match Group::make() {
        Ok(group) => group,
        Err(why) => {
            println!("skipped, because no control group with a quota can be made here ({why})");
            return;
        }
    };
    let name = "processors_that_a_quota_takes_away_are_slow_ones_and_have_another_way";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(GROUP, group.directory.join(group.quota))
        .status();
    assert!(status.unwrap().success());
}

fn under_quota(file: &Path) {
    let quota = match file.file_name().and_then(|name| name.to_str()) {
        Some("cpu.max") => "cpu.max",
        _ => "cpu.cfs_quota_us",
    };
    // Removed by who made it, once this process has ended.
    let group = ManuallyDrop::new(Group {
        directory: file.parent().unwrap().to_owned(),
        quota,
    });
    group.enter().unwrap();
    let moving = Moving::begin(Some(LINE));
    let (mut less, mut more) = (Vec::new(), Vec::new());
    let [mut waited, mut worked] = [Duration::ZERO; 2];
    for _ in 0..3 {
        moving.looks_until(packs);
        moving.looks_on(20);
        let before = moving.reduced().times;
        group.limit(Some(PERIOD_US / 25)).unwrap();
        less.push(moving.looks_until(|way| !packs(way)));
        moving.looks_on(5);
        let times = moving.reduced().times;
        waited += times.for_processors - before.for_processors;
        worked += at_work(&times) - at_work(&before);
        group.limit(None).unwrap();
        more.push(moving.looks_until(packs));
    }
    println!(
        "less of processors after {less:?}, more after {more:?}; waited {waited:?}, worked {worked:?}"
    );
    for looks in [less, more] {
        assert!(middle(looks) <= LOOKS, "{:#?}", moving.reduced());
    }
    // What a quota takes is counted as waited for, though no thread asked for it.
    assert!(waited > worked);
}

fn at_work(times: &Times) -> Duration {
    times.describing + times.packing + times.trying + times.carrying
}
