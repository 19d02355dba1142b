//! Processors that are to wake quickly while a process carries.

use std::fs;
use std::path::Path as FilePath;

use drover_carrier::Latency;
use drover_types::{CpuLatency, IdleTime};

use super::*;

#[test]
fn processors_are_kept_awake_while_a_session_lives_and_told_how_long_they_slept() {
    let mut process = process();
    let device = host_with_one_state(&process);
    let slept = |us: u64| {
        let time = device.with_file_name("../sys/devices/system/cpu/cpu0/cpuidle/state0/time");
        fs::write(time, us.to_string()).unwrap();
    };
    let agent = process.agent(0);
    let mut start = process.start(Side::Source, PATIENCE);
    start.cpu_latency_us = Some(20);
    assert_eq!(holders(&device), 0);
    agent.ask(&Request::Start(start)).unwrap();
    assert_eq!(holders(&device), 1);
    assert_eq!(fs::read(&device).unwrap(), 20_i32.to_ne_bytes());
    slept(1700);
    agent.ask(&Request::Report).unwrap();
    let told = |agent: &Agent, us, over| {
        let idle = vec![IdleTime {
            state: "C1E".into(),
            latency_us: 10,
            time_us: us,
        }];
        let told = Latency {
            cpu: CpuLatency::Held { us: 20 },
            idle: Ok(idle),
            over,
        };
        agent.counters(|counters| counters.latency.as_ref() == Some(&told));
    };
    told(&agent, 700, false);
    // The last look is at the end, and what it saw stays.
    slept(2700);
    agent.ask(&Request::Cut).unwrap();
    assert_eq!(holders(&device), 0);
    slept(9999);
    agent.ask(&Request::Report).unwrap();
    told(&agent, 1700, true);
    agent.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}

#[test]
fn a_session_that_nobody_comes_back_to_lets_processors_sleep_again() {
    let mut process = process();
    let device = host_with_one_state(&process);
    let agent = process.agent(0);
    let mut start = process.start(Side::Source, Duration::from_millis(50));
    start.cpu_latency_us = Some(20);
    agent.ask(&Request::Start(start)).unwrap();
    assert_eq!(holders(&device), 1);
    drop(agent);
    process.ends();
    assert_eq!(holders(&device), 0);
}

#[test]
fn processors_that_cannot_be_kept_awake_are_told_with_the_reason_and_bytes_are_carried_all_the_same()
 {
    let mut process = process();
    let agent = process.agent(0);
    let mut start = process.start(Side::Source, PATIENCE);
    start.cpu_latency_us = Some(20);
    agent.ask(&Request::Start(start)).unwrap();
    let counters = agent.counters(|counters| counters.latency.is_some());
    let Latency { cpu, idle, .. } = counters.latency.unwrap();
    let CpuLatency::Refused { why } = cpu else {
        panic!("{cpu:?}");
    };
    assert!(
        why.contains("dev/cpu_dma_latency takes no request: No such file"),
        "{why}"
    );
    assert!(idle.unwrap_err().contains("sys/devices/system/cpu/online"));
    agent.ask(&Request::Close { finished: false }).unwrap();
    process.ends();
}

/// A host's root directory where the process looks for it: one processor, with one idle state; and its device.
fn host_with_one_state(process: &Process) -> PathBuf {
    let root = process.directory.path();
    let cpus = root.join("sys/devices/system/cpu");
    let state = cpus.join("cpu0/cpuidle/state0");
    fs::create_dir_all(&state).unwrap();
    fs::create_dir(root.join("dev")).unwrap();
    let device = root.join("dev/cpu_dma_latency");
    for (file, text) in [
        (cpus.join("online"), "0\n"),
        (state.join("name"), "C1E\n"),
        (state.join("latency"), "10\n"),
        (state.join("time"), "1000\n"),
        (device.clone(), ""),
    ] {
        fs::write(file, text).unwrap();
    }
    device
}

/// How many descriptors of this program are open on it.
fn holders(file: &FilePath) -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    open.filter(|target| target == file).count()
}
