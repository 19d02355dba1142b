//! Bytes on the NICs and CPU time of processes, as the kernel counts them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::fault::renamed;
use crate::limits;
use crate::network::nic;
use crate::usage::{Usage, Used};

/// Longest `/proc/PID/net/dev` that is read: 64 interfaces of some 130 bytes.
const FILE_BYTES: usize = 16 << 10;

/// What a rate is over.
const SECOND: Duration = Duration::from_secs(1);

/// The transmit counters of a host's NICs.
#[derive(Debug)]
pub struct Nics {
    file: File,
    count: usize,
}

impl Nics {
    /// Of the namespace that process `pid` is in; they stay readable when it ends.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(pid: u32, count: usize) -> Result<Self> {
        let path = format!("/proc/{pid}/net/dev");
        let file = File::open(&path).with_context(|| format!("cannot read {path}"))?;
        Ok(Self { file, count })
    }

    /// Bytes sent so far on each NIC.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sent(&self) -> Result<Vec<u64>> {
        let mut bytes = vec![0; FILE_BYTES];
        let mut length = 0;
        loop {
            let read = self.file.read_at(&mut bytes[length..], length as u64)?;
            length += read;
            if read == 0 || length == bytes.len() {
                break;
            }
        }
        let text = String::from_utf8_lossy(&bytes[..length]);
        Ok((0..self.count)
            .map(|number| sent_by(&text, &nic(number)).max(sent_by(&text, &renamed(number))))
            .collect())
    }
}

/// The ninth number after the name, in `/proc/net/dev`.
fn sent_by(text: &str, nic: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(name, _)| name.trim() == nic);
    let number = found.and_then(|(_, numbers)| numbers.split_whitespace().nth(8)?.parse().ok());
    number.unwrap_or(0)
}

/// Bytes sent on each NIC, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// Since the first sample.
    pub sent: Vec<u64>,
}

impl Sample {
    fn total(&self) -> u64 {
        self.sent.iter().sum()
    }
}

/// CPU time of a QEMU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QemuCpu {
    /// Of the guest's own CPUs.
    pub guest: Duration,
    /// Of everything else.
    pub qemu: Duration,
}

impl QemuCpu {
    fn since(self, before: Self) -> Self {
        Self {
            guest: self.guest.saturating_sub(before.guest),
            qemu: self.qemu.saturating_sub(before.qemu),
        }
    }
}

/// A QEMU and those of its threads that run the guest.
#[derive(Debug, Clone)]
pub struct QemuThreads {
    /// The process.
    pub pid: u32,
    /// The threads.
    pub vcpus: Vec<u32>,
}

impl QemuThreads {
    /// Those of a QEMU that it tells by its own numbers, which are others where its host numbers processes for itself.
    #[must_use]
    pub fn of(pid: u32, told: &[u32]) -> Self {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        let threads = tasks.filter_map(|task| {
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let number = own_number(&status).filter(|number| told.contains(number));
            number.and(task.file_name().to_str()?.parse().ok())
        });
        Self {
            pid,
            vcpus: threads.collect(),
        }
    }

    /// Their CPU time so far; `None` when the process is gone.
    #[must_use]
    pub fn cpu(&self) -> Option<QemuCpu> {
        let threads = self
            .vcpus
            .iter()
            .map(|thread| cpu_of_thread(self.pid, *thread));
        let guest = threads.sum::<Option<Duration>>()?;
        let all = cpu_of_process(self.pid).ok()?;
        Some(QemuCpu {
            guest,
            qemu: all.saturating_sub(guest),
        })
    }
}

/// What a thread takes for its number, by its status (proc(5)): the innermost of its namespaces of processes.
fn own_number(status: &str) -> Option<u32> {
    let numbers = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// What a [`Sampler`] saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// Bytes on the NICs, over time.
    pub nics: Vec<Sample>,
    /// CPU time of the QEMU, until it was last seen.
    pub cpu: QemuCpu,
    /// What the agents of source and destination used, if they took part.
    pub agents: Option<[Used; 2]>,
}

/// Reads the counters of NICs and of a QEMU every [`limits::SAMPLE`] until it is finished. The
/// QEMU may end meanwhile.
#[derive(Debug)]
pub struct Sampler {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Result<Sampled>>,
}

impl Sampler {
    /// Begins.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(nics: Nics, qemu: QemuThreads, agents: Option<Usage>) -> Result<Self> {
        let done = Arc::new(AtomicBool::new(false));
        let own = Arc::clone(&done);
        let thread = thread::Builder::new()
            .name("lab-counters".to_owned())
            .spawn(move || sample(&nics, &qemu, agents, &own))
            .context("cannot start a thread")?;
        Ok(Self { done, thread })
    }

    /// Ends, with a last sample.
    ///
    /// # Errors
    /// The counters could not be read.
    pub fn finish(self) -> Result<Sampled> {
        self.done.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the counters' thread failed"))
    }
}

fn sample(
    nics: &Nics,
    qemu: &QemuThreads,
    mut agents: Option<Usage>,
    done: &AtomicBool,
) -> Result<Sampled> {
    let first = nics.sent()?;
    let before = qemu.cpu().unwrap_or_default();
    let mut sampled = Sampled {
        nics: Vec::new(),
        cpu: QemuCpu::default(),
        agents: None,
    };
    loop {
        let last = done.load(Ordering::Relaxed);
        let now = nics.sent()?;
        let sent = now
            .iter()
            .zip(&first)
            .map(|(now, first)| now.saturating_sub(*first))
            .collect();
        sampled.nics.push(Sample {
            at: Instant::now(),
            sent,
        });
        if let Some(cpu) = qemu.cpu() {
            sampled.cpu = cpu.since(before);
        }
        if let Some(agents) = &mut agents {
            agents.look();
        }
        if last || sampled.nics.len() >= limits::SAMPLES {
            sampled.agents = agents.as_ref().map(Usage::used);
            return Ok(sampled);
        }
        thread::park_timeout(limits::SAMPLE);
    }
}

/// The rate in bytes a second between 5 % and 95 % of all bytes: the bulk of a transfer, without
/// its beginning and end. `None` when there are too few samples to tell.
#[must_use]
pub fn bulk_rate(samples: &[Sample]) -> Option<f64> {
    let total = samples.last()?.total() as f64;
    rate_between(samples, total * 0.05, 0.95)
}

/// The rate in bytes a second from the moment at which so many bytes had been sent until a part of
/// all had been. `None` when there are too few samples to tell.
#[must_use]
pub fn rate_between(samples: &[Sample], from: f64, to_part: f64) -> Option<f64> {
    let to = samples.last()?.total() as f64 * to_part;
    let (begin, end) = (moment(samples, from)?, moment(samples, to)?);
    let time = end.saturating_duration_since(begin);
    (time >= 2 * limits::SAMPLE).then(|| (to - from) / time.as_secs_f64())
}

/// Bytes that were sent in the busiest second; of less than one, all of them.
#[must_use]
pub fn busiest_second(samples: &[Sample]) -> u64 {
    let mut first = 0;
    let mut most = 0;
    for now in samples {
        while now.at.saturating_duration_since(samples[first].at) > SECOND {
            first += 1;
        }
        most = most.max(now.total() - samples[first].total());
    }
    most
}

/// When so many bytes had been sent, between two samples by their proportion.
fn moment(samples: &[Sample], bytes: f64) -> Option<Instant> {
    let after = samples
        .iter()
        .position(|sample| sample.total() as f64 >= bytes)?;
    let (b, a) = (&samples[after], samples.get(after.checked_sub(1)?)?);
    let (from, to) = (a.total() as f64, b.total() as f64);
    let part = if to > from {
        (bytes - from) / (to - from)
    } else {
        0.0
    };
    Some(a.at + (b.at - a.at).mul_f64(part.clamp(0.0, 1.0)))
}

/// CPU time that a process has used, by user and kernel, of threads that ended too.
///
/// # Errors
/// There is no such process.
pub fn cpu_of_process(pid: u32) -> Result<Duration> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    cpu_in_stat(&text).with_context(|| format!("{path} is not what proc(5) says"))
}

/// CPU time of one thread; `None` when it is gone.
fn cpu_of_thread(pid: u32, thread: u32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()?;
    text.split_whitespace()
        .next()?
        .parse()
        .ok()
        .map(Duration::from_nanos)
}

/// Fields 14 and 15 of proc_pid_stat(5), counted after the name, which may hold anything.
fn cpu_in_stat(text: &str) -> Option<Duration> {
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = ticks(11)? + ticks(12)?;
    let second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_secs_f64(ticks as f64 / second as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_known_by_the_number_that_its_own_host_gives_it() {
        let inside = "Name:\tCPU 0/TCG\nNSpid:\t30866\t41\nThreads:\t3\n";
        assert_eq!(own_number(inside), Some(41));
        assert_eq!(own_number("NSpid:\t30866\n"), Some(30866));
        assert_eq!(own_number("Name:\tx\n"), None);
        let own = std::process::id();
        assert_eq!(QemuThreads::of(own, &[own]).vcpus, [own]);
    }

    #[test]
    fn the_bytes_sent_by_a_nic_are_found_by_its_whole_name() {
        let text = "Inter-|   Receive | Transmit\n face |bytes packets\n\
                    nic10: 1 2 3 4 5 6 7 8 99 10\n  nic1: 1 2 3 4 5 6 7 8 77 10 11\n";
        assert_eq!(sent_by(text, "nic1"), 77);
        assert_eq!(sent_by(text, "nic10"), 99);
        assert_eq!(sent_by(text, "nic2"), 0);
    }

    #[test]
    fn the_bulk_rate_leaves_out_a_slow_beginning_and_end() {
        let start = Instant::now();
        let sample = |ms, sent| Sample {
            at: start + Duration::from_millis(ms),
            sent: vec![sent],
        };
        // 1000 bytes a second in the middle; 40 bytes before and after in half a second each.
        let samples = [
            sample(0, 0),
            sample(500, 40),
            sample(1420, 960),
            sample(1920, 1000),
        ];
        let rate = bulk_rate(&samples).unwrap();
        assert!((rate - 1000.0).abs() < 1.0, "{rate}");
        assert_eq!(bulk_rate(&samples[..1]), None);
        assert_eq!(bulk_rate(&[]), None);
    }

    #[test]
    fn the_busiest_second_is_found_wherever_it_is() {
        let start = Instant::now();
        let sample = |ms, sent| Sample {
            at: start + Duration::from_millis(ms),
            sent: vec![sent, 0],
        };
        let samples = [
            sample(0, 0),
            sample(600, 10),
            sample(1200, 500),
            sample(1600, 900),
            sample(2400, 950),
        ];
        assert_eq!(busiest_second(&samples), 890, "from 600 to 1600 ms");
        assert_eq!(busiest_second(&samples[..2]), 10);
        assert_eq!(busiest_second(&[]), 0);
    }

    #[test]
    fn cpu_time_is_read_also_when_the_name_has_brackets() {
        let text = "42 (a) b (c)) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 9 9";
        assert_eq!(cpu_in_stat(text).map(|cpu| cpu.as_millis()), Some(2000));
        assert_eq!(cpu_in_stat("42 (x"), None);
        assert!(cpu_of_process(std::process::id()).is_ok());
    }

    #[test]
    fn this_process_can_count_its_own_interfaces() {
        let nics = Nics::of(std::process::id(), 2).unwrap();
        assert_eq!(nics.sent().unwrap().len(), 2);
    }
}
