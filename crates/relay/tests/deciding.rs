//! What is decided between two relays while their lines and their processors change under them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod pair;
mod streams;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use drover_relay::limits::PACKING_NICE;
use drover_relay::{Codec, Decided, Level, Policy, Reduced, Times, Way};
use drover_types::ByteRate;
use drover_wire::ByeCode;
use pair::{Pair, Protected, pair_of};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
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
const LINE: ByteRate = ByteRate(if cfg!(debug_assertions) {
    6_000_000
} else {
    40_000_000
});

/// In how many looks there is another way, and one that was half over. They are 50 ms apart at the least, and no closer than chunks: over
/// 3 MB/s 50 to 90 ms, so that what is printed says something of 500 ms only where this is optimised (`cargo test --release`).
const LOOKS: u64 = 11;

/// Changes of each kind that have to count, and those that are made for it at the most. One in three was seen that found such
/// a way in use already, a codec under the quota: so that 15 are not enough once in 30,000 times.
const CHANGES: usize = 3;
const TRIES: usize = 15;

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
        Self::begin_by(Policy::Fastest, rate)
    }

    fn begin_by(policy: Policy, rate: Option<ByteRate>) -> Self {
        let pair = pair_of(Protected::Plain, by(policy));
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

    /// Makes a change, and waits until such a way is in use. None where one was already: then the change shows nothing.
    fn looks_after(&self, change: impl FnOnce(), accept: impl Fn(Way) -> bool) -> Option<After> {
        let (before, begun) = (self.decided(), Instant::now());
        change();
        let mut looks = 0;
        until(|| {
            let decided = self.decided();
            looks = decided.looks - before.looks;
            accept(decided.way)
        });
        let lasted = begun.elapsed();
        (!accept(before.way)).then_some(After { looks, lasted })
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
    for _ in 0..TRIES {
        let slow = || moving.pair.source.limit(None, Some(SLOW));
        slower.extend(moving.looks_after(slow, packs));
        moving.looks_on(40);
        let quick = || moving.pair.source.limit(None, None);
        faster.extend(moving.looks_after(quick, |way| !packs(way)));
        moving.looks_on(10);
        if are_enough(&slower, &faster) {
            break;
        }
    }
    println!("a slower line after {slower:?}, a faster one after {faster:?}");
    for looks in [slower, faster] {
        assert!(middle(looks) <= LOOKS, "{:#?}", moving.reduced());
    }
}

fn are_enough(one: &[After], other: &[After]) -> bool {
    one.len().min(other.len()) >= CHANGES
}

/// The middle one: what others want of the processors meanwhile may spoil one of them.
fn middle(mut all: Vec<After>) -> u64 {
    let count = all.len();
    assert!(count >= CHANGES, "{count} of {TRIES} changes count");
    all.sort_unstable();
    all[count / 2].looks
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
    for _ in 0..TRIES {
        until(|| packs(moving.decided().way));
        moving.looks_on(20);
        let before = moving.reduced().times;
        let take = || group.limit(Some(PERIOD_US / 25)).unwrap();
        less.extend(moving.looks_after(take, |way| !packs(way)));
        moving.looks_on(5);
        let times = moving.reduced().times;
        waited += times.for_processors - before.for_processors;
        worked += at_work(&times) - at_work(&before);
        let give_back = || group.limit(None).unwrap();
        more.extend(moving.looks_after(give_back, packs));
        if are_enough(&less, &more) {
            break;
        }
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

/// With which `nice` threads whose names begin so are found just now (proc_pid_stat(5), field 19).
fn nice_of(threads: &str) -> BTreeSet<i32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    let nice = |stat: String| {
        let (name, fields) = stat.split_once('(')?.1.rsplit_once(") ")?;
        let nice = fields.split(' ').nth(16)?.parse().ok()?;
        name.starts_with(threads).then_some(nice)
    };
    stats.filter_map(nice).collect()
}

#[test]
fn threads_that_pack_and_unpack_have_less_priority_meanwhile() {
    let own = |nice| setpriority_process(Some(gettid()), nice);
    // At the end of the scale, as where tests are to disturb nobody, less would be the same.
    if let Err(error) = own(PACKING_NICE).and_then(|()| own(0)) {
        println!(
            "skipped, because threads have their priority back with CAP_SYS_NICE only: {error}"
        );
        return;
    }
    let zstd = Way::with(Codec::Zstd(Level::USUAL));
    let moving = Moving::begin_by(Policy::Always(zstd), None);
    // The source reads channels and packs, the destination unpacks and writes them.
    for threads in ["relay-read-", "relay-write-"] {
        let mut seen = BTreeSet::new();
        until(|| {
            seen.extend(nice_of(threads));
            seen.is_superset(&BTreeSet::from([0, PACKING_NICE]))
        });
    }
    drop(moving);
}
