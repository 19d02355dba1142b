//! What the doctor reads of real objects of the kernel, and sets on real drivers: on an emulated host that starts Debian's kernel and
//! runs the ignored tests of this file. What its adapters cannot show stands in docs/SEMANTICS.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod adapter;
#[path = "../captured/mod.rs"]
mod captured;
mod here;
#[path = "../../../droverd/tests/trust/provision.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod provision;
mod read;
mod set;
#[path = "../../../droverd/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drover_lab::command::find;
use drover_lab::emulated::{Adapter, EmulatedHost, Ended, Program, cache};

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// For all tests on the host, once it is there. With up to seven others that want two cores 18 of them took 340 to 580 s, at most 32 s
/// each; 26 take 840 s so, and this is nearly half as much again.
const WITHIN: Duration = Duration::from_secs(1200);

/// What they look at adapters with, beside ours: in Debian's package of the same name.
const ETHTOOL: &str = "ethtool";

/// Adapters by their names, what QEMU emulates, and on which wires they are. Those that are far are put where another host would be.
const ADAPTERS: [(&str, &str, u32); 6] = [
    ("near0", "igb", 0),
    ("near1", "igb", 1),
    ("far0", "igb", 0),
    ("far1", "igb", 1),
    ("intel0", "e1000e", 2),
    ("vmx0", "vmxnet3", 3),
];

/// What the kernel loads. Modes of teams are modules of their own, and nothing in there loads them when they are asked for.
const MODULES: [&str; 12] = [
    "igb",
    "e1000e",
    "vmxnet3",
    "bonding",
    "team",
    "team_mode_activebackup",
    "team_mode_loadbalance",
    "team_mode_roundrobin",
    "8021q",
    "bridge",
    "crc32_generic",
    "rdma_rxe",
];

/// The host, or none and why where it cannot be had.
async fn emulated() -> Option<EmulatedHost> {
    let made = EmulatedHost::new(Path::new(QEMU));
    let made = made.map(|mut host| {
        let adapter = |(name, model, wire): (&str, &str, u32)| Adapter {
            name: name.to_owned(),
            model: model.to_owned(),
            wire,
        };
        host.adapters = ADAPTERS.map(adapter).into();
        // What calculates it is no module of newer kernels.
        let is_there = |name: &&str| *name != "crc32_generic" || host.kernel.has(name);
        let modules = MODULES.into_iter().filter(is_there);
        host.modules = modules.map(str::to_owned).collect();
        host
    });
    let checked = match made {
        Ok(_) if find(ETHTOOL).is_none() => Err(anyhow::anyhow!(
            "{ETHTOOL} is missing; install with: apt-get install {ETHTOOL}"
        )),
        Ok(host) => host.check().await.map(|()| host),
        Err(missing) => Err(missing),
    };
    match checked {
        Ok(host) => Some(host),
        Err(obstacle) => {
            let all = of_the_host();
            println!("skipped, because {obstacle:#}: {all} tests run on an emulated host");
            None
        }
    }
}

/// How many tests there are for the host.
fn of_the_host() -> usize {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let listed = command.args(["--ignored", "--list"]).output().unwrap();
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    listed
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count()
}

/// Runs the ignored tests on such a host, with a folder that they can write to. They run in the order of their names: those of `read`
/// find a host on which nothing was set yet.
async fn run(folder: &Path) -> Option<()> {
    let host = emulated().await?;
    let own = std::env::current_exe().unwrap().display().to_string();
    let words = [own.as_str(), "--ignored", "--nocapture", "--test-threads=1"];
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let built = Path::new(env!("CARGO_BIN_EXE_drover")).parent().unwrap();
    let program = Program {
        words: words.map(str::to_owned).into(),
        environment: vec![
            ("PATH".to_owned(), path.to_owned()),
            (here::EMULATED.to_owned(), "1".to_owned()),
            ("DROVER_LAB_CACHE".to_owned(), cache().display().to_string()),
        ],
        folders: vec![built.to_owned(), cache()],
    };
    let Ended {
        status,
        output,
        begun_anew,
    } = host.run(folder, &program, WITHIN).await.unwrap();
    for why in begun_anew {
        println!("started anew: {why}");
    }
    // What was skipped there counts here.
    for line in output.lines() {
        if line.starts_with("skipped, because") {
            println!("{line}");
        }
    }
    assert_eq!(status, 0, "tests failed on the emulated host:\n{output}");
    let passed = output
        .lines()
        .find(|line| line.contains(" passed; 0 failed"));
    let passed = passed.is_some_and(|line| !line.contains(" 0 passed"));
    assert!(passed, "no test ran");
    Some(())
}

/// All in one machine: it takes longer to start than most of them.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_real_kernel_tells_is_judged_and_what_is_set_on_its_drivers_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    if run(folder.path()).await.is_some() {
        captured::compare(&folder.path().join("out"));
    }
}
