//! Where a session's threads really run; alone in its program, as it looks at all threads of it.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

mod pair;

use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use drover_types::{CpuSet, NicPlacement, Placement};
use pair::{BOTH, PATIENCE, pair};

/// Name and allowed CPUs of every thread.
fn threads() -> Vec<(String, String)> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let thread = |task: std::io::Result<fs::DirEntry>| {
        // One that ends meanwhile is none.
        let status = fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|value| value.trim().to_owned())
        };
        Some((field("Name:")?, field("Cpus_allowed_list:")?))
    };
    tasks.filter_map(thread).collect()
}

fn allowed(names: &[&str]) -> Vec<String> {
    let named = |name: &str| names.iter().any(|wanted| name.starts_with(wanted));
    let all = threads().into_iter();
    let cpus = all.filter_map(|(name, cpus)| named(&name).then_some(cpus));
    cpus.collect()
}

#[test]
fn the_threads_of_lanes_run_near_their_nic_and_all_others_wherever_they_may() {
    let own: CpuSet = threads()[0].1.parse().unwrap();
    let Some(last) = own.iter().last().filter(|_| own.count() > 1) else {
        eprintln!("skipped, because this process may use one CPU only");
        return;
    };
    for protected in BOTH {
        let pair = pair(protected);
        let near = Placement::Near {
            nodes: vec![1],
            cpus: last.to_string().parse().unwrap(),
        };
        let nic = NicPlacement {
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            placement: near,
        };
        for relay in [&pair.source, &pair.destination] {
            relay.place(vec![nic.clone()]);
            assert_eq!(relay.report().nics, std::slice::from_ref(&nic));
        }
        pair.connect();
        // The destination's threads of a channel are started by one of a lane.
        let mut near_end = UnixStream::connect(&pair.near).unwrap();
        near_end.write_all(b"up").unwrap();
        let _far_end = pair.far.accept().unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lanes = allowed(&["relay-send-", "relay-recv-"]);
            let channels = allowed(&["relay-read-", "relay-write-"]);
            // Two lanes on two paths with two threads each, at both ends; one channel at both.
            let placed = lanes.iter().filter(|cpus| **cpus == last.to_string());
            let free = channels.iter().filter(|cpus| **cpus == own.to_string());
            if (placed.count(), free.count(), lanes.len(), channels.len()) == (16, 4, 16, 4) {
                break;
            }
            assert!(Instant::now() < deadline, "{protected:?}: {:?}", threads());
            thread::sleep(Duration::from_millis(10));
        }
        let others = allowed(&["relay-timer", "relay-accept", "relay-dial", "relay-listen"]);
        assert!(
            others.iter().all(|cpus| *cpus == own.to_string()),
            "{:?}",
            threads()
        );
        drop(pair);
        let deadline = Instant::now() + PATIENCE;
        while !allowed(&["relay-send-", "relay-recv-", "relay-read-", "relay-write-"]).is_empty() {
            assert!(Instant::now() < deadline, "{:?}", threads());
            thread::sleep(Duration::from_millis(10));
        }
    }
}
