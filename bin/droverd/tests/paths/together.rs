//! What paths carry while several hosts load each other.
//!
//! Virtual links say that they have 10 Gbit/s. Of these a load may take 2 %, so that each link is one of 200 Mbit/s to it.

use std::time::Instant;

use drover_api::{
    AnswererRequest, ClientError, ClusterPathsRequest, ClusterPathsView, ErrorCode, LoadOrder,
    LoadPath, LoadRequest, LoadTakeRequest, LoadedView,
};
use drover_tune::facts::{Fact, Joint, Path, Together};
use drover_tune::{Report, examine};
use drover_types::LoadId;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::cluster::{Cluster, SWITCH};

const MBIT: u64 = 1_000_000;

/// What a link has for loads.
const LINK: u64 = 200 * MBIT;

const LOAD: LoadRequest = LoadRequest {
    time_ms: 500,
    share: Some(2),
};

/// All of them, by way of that host's agent.
async fn loaded(cluster: &Cluster, by: &str) -> ClusterPathsView {
    let request = ClusterPathsRequest {
        load: Some(LOAD),
        load_together: true,
        ..ClusterPathsRequest::default()
    };
    cluster.client(by).cluster_paths(&request).await.unwrap()
}

/// Each finding with what it is about.
fn found(report: &Report) -> Vec<String> {
    let findings = report.findings.iter();
    findings
        .map(|finding| format!("{} {}", finding.rule, finding.subject))
        .collect()
}

/// What each carried beside others.
fn joints(view: &ClusterPathsView, of: fn(&Together) -> &Fact<Joint>) -> Vec<(&Path, &Joint)> {
    let paths = view.paths.iter();
    paths
        .map(|path| (path, of(path.together.as_ref().unwrap()).get().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_whose_links_are_all_that_holds_them_load_each_other_and_nothing_is_found() {
    let Some(cluster) = Cluster::new("fine", &["a", "b", "c"], 1).await else {
        return;
    };
    let view = loaded(&cluster, "b").await;
    let report = examine(&[], &view.paths);
    assert_eq!(found(&report), super::NOTHING, "{report:#?}");
    assert_eq!(report.skipped, []);
    let told = view.loaded_together.unwrap();
    assert_eq!((told.to_one, told.each_other, told.wanted), (3, 2, 5));
    assert_eq!((told.measured, told.paths), (6, 6));
    assert!(told.took_ms < told.budget_ms, "{told:?}");
    for host in ["a", "b", "c"] {
        let into = joints(&view, |together| &together.to_one).into_iter();
        let into: Vec<_> = into.filter(|(path, _)| path.far.host == host).collect();
        assert_eq!(into.len(), 2);
        // What loads may take of a link is for all of them together.
        let allowed: u64 = into.iter().filter_map(|(_, one)| one.carried.allowed).sum();
        assert_eq!(allowed, LINK);
        let carried: u64 = into.iter().map(|(_, one)| one.carried.rate).sum();
        assert!(carried < LINK / 100 * 115, "{into:#?}");
    }
    for (path, joint) in joints(&view, |together| &together.each_other) {
        assert_eq!(joint.carried.allowed, Some(LINK), "{path:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uplink_between_two_switches_that_carries_less_than_two_hosts_is_the_first_finding() {
    let Some(cluster) = Cluster::new("uplink", &["a", "b", "c", "d"], 1).await else {
        return;
    };
    // What a and b send to c and d crosses one line, which has enough for one of them.
    for command in [
        "ip link add far0 type bridge",
        "ip link set far0 mtu 9000 up",
        "ip link set c0 master far0",
        "ip link set d0 master far0",
        "ip link add up0 mtu 9000 type veth peer name up1 mtu 9000",
        "ip link set up0 master br0 up",
        "ip link set up1 master far0 up",
        // Both have the same share of it, so that no chance decides who falls short, and acknowledgements wait for nothing.
        "tc qdisc add dev up0 root handle 1: htb default 20",
        "tc class add dev up0 parent 1: classid 1:1 htb rate 270mbit burst 64kb cburst 64kb quantum 65536",
        "tc class add dev up0 parent 1:1 classid 1:10 htb rate 10mbit ceil 270mbit prio 0 burst 64kb cburst 64kb quantum 65536",
        "tc class add dev up0 parent 1:1 classid 1:20 htb rate 130mbit ceil 270mbit prio 1 burst 64kb cburst 64kb quantum 65536",
        "tc class add dev up0 parent 1:1 classid 1:30 htb rate 130mbit ceil 270mbit prio 1 burst 64kb cburst 64kb quantum 65536",
        "tc qdisc add dev up0 parent 1:20 bfifo limit 1mb",
        "tc qdisc add dev up0 parent 1:30 bfifo limit 1mb",
        "tc filter add dev up0 parent 1: protocol ip prio 1 u32 match u16 0 0xff00 at 2 flowid 1:10",
        "tc filter add dev up0 parent 1: protocol ip prio 2 u32 match u32 1 1 at 12 flowid 1:30",
    ] {
        cluster.run(SWITCH, command);
    }
    let view = loaded(&cluster, "a").await;
    let report = examine(&[], &view.paths);
    // Whichever of them is worse.
    let mut found = found(&report);
    found.sort();
    let both = ["path-together a n0", "path-together b n0"];
    assert_eq!(found, both, "{report:#?}");
    let read = |host: &str| {
        let mut findings = report.findings.iter();
        let of_it = findings.find(|finding| finding.subject.host == host);
        of_it.unwrap().found.read.as_str()
    };
    let told = "to n0 of c while every host loads another";
    assert!(read("a").contains(told), "{}", read("a"));
    assert!(read("a").contains("b n0 to d n0"), "{}", read("a"));
    assert!(read("b").contains("a n0 to c n0"), "{}", read("b"));
    assert_eq!(report.skipped, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_have_a_cluster_loaded_at_once_one_is_refused_and_nothing_is_taken_for_a_fault()
{
    let Some(cluster) = Cluster::new("both", &["a", "b", "c"], 1).await else {
        return;
    };
    let (one, other) = tokio::join!(loaded(&cluster, "a"), loaded(&cluster, "c"));
    let is_loaded = |view: &ClusterPathsView| {
        let mut paths = view.paths.iter();
        paths.all(|path| path.carried.as_ref().unwrap().known().is_some())
    };
    let (first, second, by) = match is_loaded(&one) {
        true => (one, other, "a"),
        false => (other, one, "c"),
    };
    assert!(is_loaded(&first), "{first:#?}");
    for (view, nobody) in [(&first, ""), (&second, "is busy with a load of ")] {
        let report = examine(&[], &view.paths);
        assert_eq!(found(&report), super::NOTHING, "{report:#?}");
        // What was lost of other questions beside loads is skipped as well.
        let loads = ["path-rate", "path-incast", "path-together"];
        let of_loads = |rule: &String| loads.contains(&rule.as_str());
        let skipped = report.skipped.iter().filter(|it| of_loads(&it.rule));
        let skipped: Vec<&str> = skipped.map(|it| it.because.as_str()).collect();
        if nobody.is_empty() {
            assert_eq!(skipped, super::NOTHING);
        } else {
            // Six paths, and twice three hosts that have one interface.
            assert_eq!(skipped.len(), 12, "{skipped:#?}");
            let busy = format!("{nobody}{by}, for ");
            assert!(
                skipped.iter().all(|why| why.contains(&busy)),
                "{skipped:#?}"
            );
        }
    }
    // And it is over when it is over.
    assert!(is_loaded(&loaded(&cluster, "c").await));
}

/// Begins after a second.
fn a_loads_b(time_ms: u64) -> LoadOrder {
    LoadOrder {
        far: "b".parse().unwrap(),
        paths: vec![LoadPath {
            nic: "n0".into(),
            from: "10.78.0.1".parse().unwrap(),
            to: "10.78.0.2".parse().unwrap(),
            senders: 1,
        }],
        load: LoadRequest { time_ms, ..LOAD },
        after_ms: 1_000,
    }
}

/// Takes both for a load, and has one load the other, until it does.
async fn loads(
    cluster: &Cluster,
    time_ms: u64,
) -> (LoadId, JoinHandle<Result<LoadedView, ClientError>>) {
    let id = LoadId(Uuid::now_v7());
    for host in ["a", "b"] {
        let request = LoadTakeRequest { id, time_s: 60 };
        cluster.client(host).take_for_load(&request).await.unwrap();
    }
    let client = cluster.client("a");
    let before = cluster.sent("a", "n0");
    let order = a_loads_b(time_ms);
    let carried = tokio::spawn(async move { client.carry_load(id, &order).await });
    let deadline = Instant::now() + super::PATIENCE;
    // More than agents say to each other.
    while cluster.sent("a", "n0") < before + (4 << 20) {
        assert!(Instant::now() < deadline, "{}", cluster.log("a"));
        tokio::time::sleep(super::SOON).await;
    }
    (id, carried)
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_are_given_back_while_they_load_each_other_are_part_of_nothing_else_before_they_have_ended()
 {
    let Some(cluster) = Cluster::new("ends", &["a", "b"], 1).await else {
        return;
    };
    // For far longer than to ask whether they are part of something.
    let (id, carried) = loads(&cluster, 10_000).await;
    let other = LoadTakeRequest {
        id: LoadId(Uuid::now_v7()),
        time_s: 60,
    };
    for host in ["a", "b"] {
        let client = cluster.client(host);
        client.end_load(id).await.unwrap();
        let refused = client.take_for_load(&other).await.unwrap_err();
        let told = refused.refusal().unwrap().message.as_str();
        assert!(told.contains("busy with the end of a load of"), "{told}");
    }
    // It goes on to its end.
    let view = carried.await.unwrap().unwrap();
    assert!(view.paths[0].carried.known().is_some(), "{view:#?}");
    for host in ["a", "b"] {
        cluster.client(host).take_for_load(&other).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_carried_to_a_host_that_is_cut_off_meanwhile_is_not_known() {
    let Some(cluster) = Cluster::new("cut", &["a", "b"], 1).await else {
        return;
    };
    let (_, carried) = loads(&cluster, 1_000).await;
    cluster.run(SWITCH, "ip link set b0 down");
    let view = carried.await.unwrap().unwrap();
    let why = view.paths[0].carried.get().unwrap_err();
    assert!(why.starts_with("b did not say how it ended: "), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_loads_nobody_and_is_loaded_by_nobody_but_as_part_of_what_it_is_taken_for() {
    let Some(cluster) = Cluster::new("taken", &["a", "b"], 1).await else {
        return;
    };
    let id = LoadId(Uuid::now_v7());
    let b = "b".parse().unwrap();
    let ask = async || {
        let client = cluster.client("a");
        let asked = client.ask_paths(&b, Some(LOAD), Some(id)).await;
        asked.unwrap().paths.remove(0).carried.unwrap()
    };
    let take = async |host: &str| {
        let request = LoadTakeRequest { id, time_s: 60 };
        cluster.client(host).take_for_load(&request).await.unwrap()
    };
    let why = ask().await.get().unwrap_err().to_owned();
    assert_eq!(why, "a is not taken for a load, or no longer");
    let lines = take("a").await.lines;
    assert_eq!(lines["n0"].rate.unwrap().0, 10_000 * MBIT);
    let why = ask().await.get().unwrap_err().to_owned();
    assert_eq!(why, "b is not taken for a load, or no longer");
    let order = a_loads_b(LOAD.time_ms);
    let refused = cluster
        .client("a")
        .carry_load(id, &order)
        .await
        .unwrap_err();
    assert!(
        refused.is_refused_with(ErrorCode::TooManyRequests),
        "{refused}"
    );
    take("b").await;
    assert!(ask().await.known().is_some());
    let carried = cluster.client("a").carry_load(id, &order).await.unwrap();
    let carried = carried.paths[0].carried.get().unwrap();
    assert_eq!(carried.allowed, Some(LINK));
    // Nothing else may load either meanwhile.
    let only = AnswererRequest {
        askers: vec!["10.78.0.1".parse().unwrap()],
        time_s: 1,
        load: true,
        part_of: Some(LoadId(Uuid::now_v7())),
        only_load: true,
    };
    let refused = cluster.client("b").order_answerer(&only).await.unwrap_err();
    assert!(
        refused.is_refused_with(ErrorCode::TooManyRequests),
        "{refused}"
    );
    let other = loaded(&cluster, "a").await;
    let why = other.paths[0].carried.as_ref().unwrap().get().unwrap_err();
    assert!(why.starts_with("a is busy with a load of a, for "), "{why}");
    for host in ["a", "b"] {
        cluster.client(host).end_load(id).await.unwrap();
    }
    let view = loaded(&cluster, "b").await;
    let told = view.loaded_together.unwrap();
    assert_eq!((told.to_one, told.each_other, told.wanted), (0, 1, 1));
    assert_eq!(found(&examine(&[], &view.paths)), super::NOTHING);
}
