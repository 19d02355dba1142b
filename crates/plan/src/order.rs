//! When each move starts, and with how much of the lines.
//!
//! One guest after another fills the lines best: with all of a line a guest dirties least while it is
//! carried. So each takes what is free of both hosts' lines when it starts and keeps it to its end; a
//! further one starts beside it where enough is left, which is where one guest or the other host's line
//! cannot fill this one's. The longest come first, for a long one that starts late ends last.
//!
//! # Invariant
//! At each moment the rates of all moves of a host, in one direction, are together at most its line,
//! and their number is within its limit and the cluster's.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use drover_types::BitRate;

use crate::limits::LEAST_SHARE_PERCENT;
use crate::model::{HostIx, Model, VmIx};
use crate::precopy::{Forecast, Range, forecast};

/// One move.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) vm: VmIx,
    pub(crate) from: HostIx,
    pub(crate) to: HostIx,
}

/// When it starts and with what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) starts_ms: u64,
    pub(crate) bandwidth: BitRate,
    pub(crate) forecast: Forecast,
}

/// Guests of higher priority first, then those that take longest: the large and busy.
pub(crate) fn sort(model: &Model<'_>, jobs: &mut [Job]) {
    jobs.sort_by_cached_key(|job| {
        let vm = model.vms[job.vm];
        let takes = forecast(vm, model.line(job.from, job.to)).ms.expected;
        (Reverse(vm.policy.priority), Reverse(takes), job.vm)
    });
}

/// Starts jobs in their order, each as soon as the limits allow. The timings are those expected; the
/// range is that of the end of all.
pub(crate) fn schedule(model: &Model<'_>, jobs: &[Job]) -> (Vec<Timing>, Range) {
    let [least, expected, most] = [
        |time: Range| time.least,
        |time: Range| time.expected,
        |time: Range| time.most,
    ]
    .map(|which| Run::new(model, jobs, which).run());
    let end = expected.1;
    let range = Range {
        least: least.1.min(end),
        expected: end,
        most: most.1.max(end),
    };
    (expected.0, range)
}

/// What is free in one direction of a host.
#[derive(Debug, Clone, Copy)]
struct Line {
    free: u64,
    slots: u32,
}

struct Run<'r> {
    model: &'r Model<'r>,
    jobs: &'r [Job],
    takes: fn(Range) -> u64,
    out: Vec<Line>,
    into: Vec<Line>,
    slots: u32,
    /// By their end.
    running: BinaryHeap<Reverse<(u64, usize, u64)>>,
    timings: Vec<Option<Timing>>,
}

impl<'r> Run<'r> {
    fn new(model: &'r Model<'r>, jobs: &'r [Job], takes: fn(Range) -> u64) -> Self {
        let policy = model.policy;
        let line = |at_once: fn(&crate::inventory::Host) -> Option<u32>, otherwise: u32| {
            let line = move |host: &&crate::inventory::Host| Line {
                free: host.bandwidth.0,
                slots: at_once(host).unwrap_or(otherwise),
            };
            model.hosts.iter().map(line).collect::<Vec<_>>()
        };
        Self {
            out: line(|host| host.outbound, policy.outbound),
            into: line(|host| host.inbound, policy.inbound),
            slots: policy.in_cluster(),
            running: BinaryHeap::new(),
            timings: vec![None; jobs.len()],
            model,
            jobs,
            takes,
        }
    }

    fn run(mut self) -> (Vec<Timing>, u64) {
        let mut waiting: Vec<usize> = (0..self.jobs.len()).collect();
        let mut now = 0;
        loop {
            waiting.retain(|job| !self.start(*job, now));
            let Some(Reverse((end, job, rate))) = self.running.pop() else {
                break;
            };
            now = end;
            self.end(job, rate);
            while let Some(Reverse((at, job, rate))) = self.running.peek().copied()
                && at == now
            {
                self.running.pop();
                self.end(job, rate);
            }
        }
        (self.timings.into_iter().flatten().collect(), now)
    }

    fn start(&mut self, job: usize, now: u64) -> bool {
        let Job { vm, from, to } = self.jobs[job];
        if self.slots == 0 || self.out[from].slots == 0 || self.into[to].slots == 0 {
            return false;
        }
        let line = self.model.line(from, to);
        let rate = line.min(self.out[from].free).min(self.into[to].free);
        if u128::from(rate) * 100 < u128::from(line) * u128::from(LEAST_SHARE_PERCENT) || rate == 0
        {
            return false;
        }
        self.slots -= 1;
        for line in [&mut self.out[from], &mut self.into[to]] {
            line.slots -= 1;
            line.free -= rate;
        }
        let forecast = forecast(self.model.vms[vm], rate);
        let end = now.saturating_add((self.takes)(forecast.ms));
        self.running.push(Reverse((end, job, rate)));
        self.timings[job] = Some(Timing {
            starts_ms: now,
            bandwidth: BitRate(rate),
            forecast,
        });
        true
    }

    fn end(&mut self, job: usize, rate: u64) {
        let Job { from, to, .. } = self.jobs[job];
        self.slots += 1;
        for line in [&mut self.out[from], &mut self.into[to]] {
            line.slots += 1;
            line.free += rate;
        }
    }
}
