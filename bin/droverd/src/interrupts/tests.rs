use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A host of two sockets whose loopback interface has hardware on the second: an interface that every kernel lists.
struct Host(tempfile::TempDir);

const DEVICE: &str = "sys/devices/pci0000:80/0000:80:03.0";

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        for (path, text) in [
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/node1/cpulist", "4-7\n"),
            ("proc/sys/kernel/random/boot_id", "one\n"),
            ("proc/1/comm", "systemd\n"),
            ("state/other.json", "{}"),
        ] {
            host.write(path, text);
        }
        host.write(&format!("{DEVICE}/numa_node"), "1\n");
        for number in [40, 41] {
            host.write(&format!("{DEVICE}/msi_irqs/{number}"), "msix\n");
            host.interrupt(number, "0-7\n", "2\n");
        }
        let net = format!("{DEVICE}/net/lo");
        host.write(&format!("{net}/ifindex"), "1\n");
        host.write(&format!("{net}/address"), "00:00:00:00:00:00\n");
        let at = |path: &str| host.0.path().join(path);
        symlink("../..", at(&net).join("device")).unwrap();
        fs::create_dir_all(at("sys/class/net")).unwrap();
        symlink(at(&net), at("sys/class/net/lo")).unwrap();
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn interrupt(&self, number: u32, cpus: &str, effective: &str) {
        let folder = format!("proc/irq/{number}");
        self.write(&format!("{folder}/smp_affinity_list"), cpus);
        self.write(&format!("{folder}/effective_affinity_list"), effective);
    }

    fn is(&self, number: u32) -> String {
        let path = format!("proc/irq/{number}/smp_affinity_list");
        let text = fs::read_to_string(self.0.path().join(path)).unwrap();
        text.trim().to_owned()
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("state/interrupts.json")
    }

    fn agent(&self, by: InterruptsBy) -> Interrupts {
        let root = self.0.path();
        Interrupts::open(root, &root.join("state"), by).unwrap()
    }
}

fn share(agent: &Interrupts) -> Share {
    agent.share(MigrationId::from_bytes([1; 16]), true)
}

async fn hold(share: &Share) -> Vec<InterruptsView> {
    share.hold(BTreeSet::from(["lo".to_owned()])).await
}

fn only(views: Vec<InterruptsView>) -> String {
    assert_eq!(views.len(), 1);
    views[0].to_string()
}

#[tokio::test]
async fn interrupts_are_near_their_nic_from_a_migrations_first_path_to_its_end() {
    let host = Host::new();
    let agent = host.agent(InterruptsBy::Near);
    let share = share(&agent);
    assert_eq!(only(hold(&share).await), "lo: 2 moved to CPUs 4-7");
    assert_eq!((host.is(40), host.is(41)), ("4-7".into(), "4-7".into()));
    assert!(host.file().exists());
    // Looked at once.
    assert_eq!(hold(&share).await, []);
    assert_eq!(share.release().await.count, 2);
    assert_eq!((host.is(40), host.is(41)), ("0-7".into(), "0-7".into()));
    assert!(!host.file().exists());
    assert_eq!(share.release().await, GivenBack::default());
}

#[tokio::test]
async fn where_interrupts_are_to_be_left_none_is_looked_at() {
    let host = Host::new();
    let agent = host.agent(InterruptsBy::Leave);
    assert_eq!(hold(&share(&agent)).await, []);
    assert_eq!(host.is(40), "0-7");
}

#[tokio::test]
async fn the_next_agent_gives_back_what_was_moved_for_a_migration_that_has_ended() {
    let host = Host::new();
    let agent = host.agent(InterruptsBy::Near);
    let held = share(&agent);
    hold(&held).await;
    // Also one that is to move none.
    let next = host.agent(InterruptsBy::Leave);
    next.take_up(&BTreeSet::from([held.holder]));
    assert_eq!(host.is(40), "4-7");
    let next = host.agent(InterruptsBy::Near);
    next.take_up(&BTreeSet::new());
    assert_eq!((host.is(40), host.is(41)), ("0-7".into(), "0-7".into()));
    assert!(!host.file().exists());
}

#[tokio::test]
async fn a_migration_that_goes_on_with_another_agent_gives_back_what_the_first_had_moved() {
    let host = Host::new();
    hold(&share(&host.agent(InterruptsBy::Near))).await;
    let next = host.agent(InterruptsBy::Near);
    let again = share(&next);
    next.take_up(&BTreeSet::from([again.holder]));
    assert_eq!(only(hold(&again).await), "lo: 2 moved to CPUs 4-7");
    assert_eq!(again.release().await.count, 2);
    assert_eq!(host.is(40), "0-7");
}

#[tokio::test]
async fn after_a_restart_of_the_host_nothing_is_written() {
    let host = Host::new();
    hold(&share(&host.agent(InterruptsBy::Near))).await;
    host.write("proc/sys/kernel/random/boot_id", "two\n");
    host.agent(InterruptsBy::Near).take_up(&BTreeSet::new());
    assert_eq!(host.is(40), "4-7");
    assert!(!host.file().exists());
}

#[tokio::test]
async fn nothing_is_moved_beside_irqbalance_and_that_is_noted_only_where_there_was_something_to_move()
 {
    let host = Host::new();
    host.write("proc/812/comm", "irqbalance\n");
    let agent = host.agent(InterruptsBy::Near);
    let views = hold(&share(&agent)).await;
    assert!(views[0].fallback);
    assert_eq!(
        only(views),
        "lo: not moved, because irqbalance is running, and would move them again"
    );
    assert_eq!((host.is(40), host.file().exists()), ("0-7".into(), false));
    host.interrupt(40, "0-7\n", "5\n");
    host.interrupt(41, "6\n", "6\n");
    let views = hold(&share(&agent)).await;
    assert!(!views[0].fallback);
    assert_eq!(only(views), "lo: all are taken near it");
}

#[tokio::test]
async fn what_is_still_under_way_for_a_migration_that_has_ended_moves_nothing() {
    let host = Host::new();
    let share = share(&host.agent(InterruptsBy::Near));
    share.release().await;
    assert_eq!(hold(&share).await, []);
    assert_eq!(host.is(40), "0-7");
}

#[tokio::test]
async fn an_interface_without_a_node_is_told_and_is_no_note() {
    let host = Host::new();
    host.write(&format!("{DEVICE}/numa_node"), "-1\n");
    let views = hold(&share(&host.agent(InterruptsBy::Near))).await;
    assert!(!views[0].fallback);
    assert_eq!(
        only(views),
        "lo: not moved, because its hardware tells no NUMA node"
    );
}

#[test]
fn a_file_that_is_no_ledger_is_an_error() {
    let host = Host::new();
    host.write("state/interrupts.json", "{\"boot\": 1}");
    let state = host.0.path().join("state");
    assert!(Interrupts::open(host.0.path(), &state, InterruptsBy::Near).is_err());
}
