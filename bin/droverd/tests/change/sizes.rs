//! How large packets have to cross after a change: between hosts with agents, with a switch between them that may take less than they do.

mod layers;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use drover_api::{ChangeDetailView, ChangeRequest, ChangeState};
use drover_change::{Account, Journal, Order, Outcome, Phase, Plan, Planned, Sizes};
use drover_tune::{Disruption, NicSetting, Step};
use drover_types::ChangeId;
use jiff::Timestamp;

use crate::cluster::{Cluster, SWITCH};
use crate::host::signal;

/// For anything to happen on a loaded machine, and for what is waited for until larger packets are given up.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);

/// What is said of the path over `n0` where larger packets do not cross it.
const LOST: &str =
    "n0 10.78.0.1 to b n0 10.78.0.2: packets of 9000 bytes there and 9000 back have to cross it";

/// A plan for host `a` with these steps.
fn plan<const N: usize>(steps: [Step; N]) -> String {
    let plan = Plan {
        host: "a".parse().unwrap(),
        boot: drover_host::boot_id(Path::new("/")).unwrap(),
        made_at: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        changes: vec![Planned {
            rule: "a-rule".into(),
            nic: None,
            disruption: Disruption::BouncesLink,
            why: "it is to be tried".into(),
            steps: steps.into(),
        }],
        lasting: None,
    };
    drover_change::write(&plan).unwrap()
}

fn packets(nic: &str, from: u32, to: u32) -> Step {
    Step::Nic {
        nic: nic.into(),
        what: NicSetting::Mtu,
        from: from.to_string(),
        to: to.to_string(),
    }
}

fn larger_packets() -> String {
    plan([packets("n0", 1500, 9000)])
}

/// A setting of which nobody would think that it has to do with packets' sizes.
pub fn timestamps() -> String {
    plan([Step::File {
        path: "proc/sys/net/ipv4/tcp_timestamps".into(),
        from: "0".into(),
        to: "1".into(),
    }])
}

/// `n0` of `a` takes less than all that is behind it.
async fn hosts(test: &str) -> Option<Cluster> {
    let cluster = Cluster::new(test, &["a", "b"], 2).await?;
    cluster.run("a", "ip link set n0 mtu 1500");
    Some(cluster)
}

impl Cluster {
    pub async fn apply(&self, plan: String) -> ChangeId {
        let request = ChangeRequest {
            plan,
            // No host is drained here.
            force: true,
            persist: false,
        };
        self.client("a").apply_changes(&request).await.unwrap().id
    }

    pub fn folder(&self, id: ChangeId) -> PathBuf {
        self.path("a", "state/changes").join(id.to_string())
    }

    /// Waits until that is so of a change, whoever is alive.
    async fn when(&self, id: ChangeId, accept: impl Fn(&Account) -> bool) -> Account {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let account = Account::read(&self.folder(id)).unwrap();
            if accept(&account) {
                return account;
            }
            assert!(Instant::now() < deadline, "{account:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn ended(&self, id: ChangeId) -> ChangeDetailView {
        self.when(id, |account| account.standing.has_ended()).await;
        self.client("a").change(id).await.unwrap()
    }

    async fn undo(&self, id: ChangeId) {
        let force = drover_api::UndoRequest { force: true };
        let undone = self.client("a").undo_change(id, &force).await.unwrap();
        assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    }

    /// Applies a plan that is taken back by itself; why.
    async fn taken_back(&self, plan: String) -> String {
        let id = self.apply(plan).await;
        let view = self.ended(id).await;
        assert_eq!(view.change.state, ChangeState::RolledBack, "{view:#?}");
        view.change.why.unwrap()
    }

    /// Begins with a plan, and has its process stand still once it has begun and before it has proved anything.
    pub async fn stopped(&self, plan: &str) -> ChangeId {
        loop {
            let id = self.apply(plan.to_owned()).await;
            self.when(id, |account| !account.records.is_empty()).await;
            let stopped = signal(&self.folder(id), "-STOP");
            if !Account::read(&self.folder(id))
                .unwrap()
                .standing
                .has_ended()
            {
                assert!(stopped);
                return id;
            }
            println!("its process was quicker than this test: once more");
            signal(&self.folder(id), "-CONT");
            self.undo(id).await;
        }
    }

    async fn mtu(&self, nic: &str) -> u32 {
        let facts = self.client("a").facts().await.unwrap().facts;
        facts.nic(nic).unwrap().mtu
    }
}

fn sizes(account: &Account) -> Vec<(&str, Sizes)> {
    let sizes = account.standing.sizes.iter();
    let mut sizes: Vec<_> = sizes.map(|path| (&*path.nic, path.sizes)).collect();
    sizes.sort_unstable_by_key(|(nic, _)| *nic);
    sizes
}

fn both(bytes: u32) -> Sizes {
    let (there, back) = (bytes, bytes);
    Sizes { there, back }
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_of_an_interface_stay_where_the_switch_carries_them_and_can_be_undone() {
    let Some(cluster) = hosts("larger").await else {
        return;
    };
    let id = cluster.apply(larger_packets()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!((view.change.paths, view.change.sizes), (2, 2));
    assert_eq!(view.not_measured, [""; 0]);
    let account = cluster.when(id, |_| true).await;
    assert_eq!(sizes(&account), [("n0", both(1500)), ("n1", both(9000))]);
    assert_eq!(cluster.mtu("n0").await, 9000);
    cluster.undo(id).await;
    assert_eq!(cluster.mtu("n0").await, 1500);
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_that_the_switch_does_not_carry_are_taken_back_by_themselves_whoever_dies() {
    let Some(mut cluster) = hosts("middle").await else {
        return;
    };
    cluster.run(SWITCH, "ip link set b0 mtu 1500");
    // The agent dies while it is proved: nothing is asked of that one.
    let id = cluster.apply(larger_packets()).await;
    cluster.when(id, |account| account.records.len() >= 3).await;
    cluster.kill("a");
    let account = cluster
        .when(id, |account| account.standing.has_ended())
        .await;
    let Phase::Ended(Outcome::RolledBack { why }) = &account.standing.phase else {
        panic!("{account:#?}");
    };
    assert!(why.contains(LOST) && !why.contains("n1 "), "{why}");
    cluster.start("a").await;
    assert_eq!(cluster.mtu("n0").await, 1500);
    // Then its process, and both.
    for (records, agent_dies) in [(1, false), (2, true), (3, false), (3, true)] {
        let id = cluster.apply(larger_packets()).await;
        cluster
            .when(id, |account| account.records.len() >= records)
            .await;
        if agent_dies {
            cluster.kill("a");
        }
        signal(&cluster.folder(id), "-KILL");
        if agent_dies {
            cluster.start("a").await;
        }
        let view = cluster.ended(id).await;
        assert_eq!(view.change.state, ChangeState::RolledBack, "{view:#?}");
        assert_eq!(cluster.mtu("n0").await, 1500);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_carries_less_than_before_has_a_setting_taken_back_though_small_packets_cross()
{
    let Some(cluster) = Cluster::new("less", &["a", "b"], 2).await else {
        return;
    };
    let stamps = "net.ipv4.tcp_timestamps";
    cluster.run("a", &format!("sysctl -qw {stamps}=0"));
    let id = cluster.stopped(&timestamps()).await;
    let account = Account::read(&cluster.folder(id)).unwrap();
    assert_eq!(sizes(&account), [("n0", both(9000)), ("n1", both(9000))]);
    cluster.run(SWITCH, "ip link set b1 mtu 1500");
    assert!(signal(&cluster.folder(id), "-CONT"));
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::RolledBack, "{view:#?}");
    let why = view.change.why.unwrap();
    let lost = "n1 10.78.1.1 to b n1 10.78.1.2: packets of 9000 bytes there and 9000 back";
    assert!(why.contains(lost) && !why.contains("n0 "), "{why}");
    let facts = cluster.client("a").facts().await.unwrap().facts;
    assert_eq!(facts.setting(stamps), Ok("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_are_not_begun_with_where_no_other_agent_answers_and_other_settings_are() {
    let Some(mut cluster) = hosts("alone").await else {
        return;
    };
    cluster.kill("b");
    let id = cluster.apply(larger_packets()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Refused, "{view:#?}");
    let why = view.change.why.unwrap();
    let begins = "nothing would prove that the network carries packets of 9000 bytes from n0";
    assert!(why.starts_with(begins) && why.contains("host b"), "{why}");
    cluster.run("a", "sysctl -qw net.ipv4.tcp_timestamps=0");
    let id = cluster.apply(timestamps()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!((view.change.paths, view.change.sizes), (2, 0));
    assert!(view.not_measured[0].contains("host b"), "{view:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_there_and_does_not_tell_has_larger_packets_refused_and_one_that_is_off_is_named()
 {
    let Some(mut cluster) = Cluster::new("there", &["a", "b", "c"], 2).await else {
        return;
    };
    cluster.run("a", "ip link set n0 mtu 1500");
    // Its agent hangs, and then there is none.
    cluster.hang("c");
    for ends in [false, true] {
        if ends {
            cluster.kill("c");
        }
        let id = cluster.apply(larger_packets()).await;
        let view = cluster.ended(id).await;
        assert_eq!(view.change.state, ChangeState::Refused, "{view:#?}");
        let why = view.change.why.unwrap();
        let says = "larger packets to c, which is there";
        assert!(why.contains(says), "{why}");
        assert_eq!(cluster.mtu("n0").await, 1500);
    }
    for nic in ["n0", "n1"] {
        cluster.run("c", &format!("ip link set {nic} down"));
    }
    let id = cluster.apply(larger_packets()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    let of_c = |why: &String| why.contains("host c") || why.contains("agent of c");
    assert!(view.not_measured.iter().any(of_c), "{view:#?}");
    assert_eq!(cluster.mtu("n0").await, 9000);
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_migrations_it_is_not_asked_how_large_packets_cross_and_that_is_said() {
    let Some(cluster) = hosts("moving").await else {
        return;
    };
    cluster.run("a", "sysctl -qw net.ipv4.tcp_timestamps=0");
    for (moving, measured) in [(2, 0), (0, 2)] {
        let order = Order {
            plan: drover_change::read(&timestamps()).unwrap(),
            paths: Vec::new(),
            links: Vec::new(),
            moving,
            lasting: None,
        };
        // Beside those of the agent, which looks after its own.
        let folder = cluster.path("a", &format!("moving-{moving}"));
        let lock = Journal::make(&folder, &order).unwrap().into_lock();
        let mut process = cluster.droverd("a");
        process.args(["change", "--host", "a"]).arg(&folder);
        process.arg("apply").stdin(Stdio::from(lock));
        assert!(process.status().unwrap().success());
        let standing = Account::read(&folder).unwrap().standing;
        let applied = Phase::Ended(Outcome::Applied { proven: 0 });
        assert_eq!(standing.phase, applied, "{standing:#?}");
        assert_eq!(standing.sizes.len(), measured, "{standing:#?}");
        let mut said = standing.untold.iter();
        let is_said = said.any(|why| why.starts_with("2 migrations were under way at a"));
        assert_eq!(is_said, moving > 0, "{standing:#?}");
        cluster.run("a", "sysctl -qw net.ipv4.tcp_timestamps=0");
    }
}
