//! Agents that ask each other what the paths between them carry.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests are tests too"
)]

#[allow(dead_code, reason = "helpers of tests, not all used by each of them")]
mod cluster;
mod firewall;
mod load;
#[path = "../trust/provision.rs"]
#[allow(dead_code, reason = "helpers of tests, not all used by each of them")]
mod provision;
#[path = "../support/mod.rs"]
mod support;
mod switches;
mod together;

use std::time::{Duration, Instant};

use drover_api::{
    AnswererRequest, ClientError, ClusterPathsRequest, ErrorCode, OpenEnds, OpenRequest, PathsView,
};
use drover_tune::{Known, differences, examine};
use jiff::Timestamp;

use cluster::{Cluster, SWITCH, findings};

const PATIENCE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_millis(5);

const NOTHING: [&str; 0] = [];

#[tokio::test(flavor = "multi_thread")]
async fn paths_with_nothing_wrong_are_all_asked_from_both_ends_and_nothing_is_found() {
    let Some(cluster) = Cluster::new("clean", &["a", "b", "c"], 2).await else {
        return;
    };
    let view = cluster.asked("b", &[]).await;
    assert_eq!(
        (&view.left_out[..], &view.paths_left_out[..]),
        (&[][..], &[][..])
    );
    let told: Vec<_> = view
        .paths
        .iter()
        .map(|path| {
            format!(
                "{}>{} {}-{}",
                path.near.host, path.far.host, path.near.nic, path.far.nic
            )
        })
        .collect();
    let pairs = ["a>b", "a>c", "b>a", "b>c", "c>a", "c>b"];
    let all: Vec<_> = pairs
        .iter()
        .flat_map(|pair| ["n0-n0", "n1-n1"].map(|nics| format!("{pair} {nics}")))
        .collect();
    assert_eq!(told, all);
    assert_eq!(findings(&view.paths), NOTHING);
    for path in &view.paths {
        assert_eq!(path.there.get().unwrap().size, 9000);
        assert_eq!(path.back.get().unwrap().size, 9000);
        assert!(path.round_trip.known().is_some());
    }
    // Of one host those to and from all others, of several those among them.
    let pairs = |view: &drover_api::ClusterPathsView| view.paths.len() / 2;
    assert_eq!(pairs(&cluster.asked("a", &["b"]).await), 4);
    assert_eq!(pairs(&cluster.asked("a", &["b", "c"]).await), 2);
    let hosts = vec!["x".parse().unwrap()];
    let request = ClusterPathsRequest {
        hosts,
        ..ClusterPathsRequest::default()
    };
    let unknown = cluster.client("a").cluster_paths(&request).await;
    let refused = unknown.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::NoSuchHost), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_who_ask_at_the_same_time_hinder_nobody() {
    let Some(cluster) = Cluster::new("twice", &["a", "b", "c"], 2).await else {
        return;
    };
    let (one, other) = tokio::join!(cluster.asked("a", &[]), cluster.asked("c", &[]));
    for view in [one, other] {
        assert_eq!(view.paths_left_out, []);
        assert_eq!(view.paths.len(), 12);
        assert_eq!(findings(&view.paths), NOTHING);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_carries_smaller_packets_than_both_ends_is_found_on_its_paths_alone() {
    let Some(cluster) = Cluster::new("middle", &["a", "b", "c"], 2).await else {
        return;
    };
    cluster.run(SWITCH, "ip link set b1 mtu 1500");
    let view = cluster.asked("a", &[]).await;
    let all = ["a>b", "b>a", "b>c", "c>b"];
    assert_eq!(
        findings(&view.paths),
        all.map(|pair| format!("path-mtu {pair} n1"))
    );
    for finding in examine(&[], &view.paths).findings {
        assert!(finding.found.read.contains("15"), "{finding:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_found_of_all_is_kept_by_whoever_was_asked_and_outlives_its_agent() {
    let Some(mut cluster) = Cluster::new("since", &["a", "b", "c"], 2).await else {
        return;
    };
    let first = cluster.asked("a", &[]).await;
    assert_eq!(first.not_kept, None);
    // Some alone are not kept, and others keep nothing of it.
    cluster.asked("a", &["b", "c"]).await;
    cluster.kill("a");
    cluster.start("a").await;
    let now = Timestamp::now();
    assert_eq!(cluster.client("b").kept(now).await.unwrap().kept, None);
    let kept = cluster.client("a").kept(now).await.unwrap();
    assert_eq!(kept.unusable, []);
    let before = kept.kept.unwrap();
    assert_eq!(before.paths, first.paths);
    let hosts: Vec<_> = before.facts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(hosts, ["a", "b", "c"]);

    cluster.run(SWITCH, "ip link set b1 mtu 1500");
    let now = cluster.asked("a", &[]).await;
    let at = |paths| Known { hosts: &[], paths };
    let found = differences(at(&before.paths), at(&now.paths));
    let ends = ["a and b", "b and a", "b and c", "c and b"];
    let findings: Vec<_> = found
        .findings
        .iter()
        .map(|it| format!("{} {} {}", it.trend, it.subject, it.what))
        .collect();
    assert_eq!(findings, ends.map(|ends| format!("new {ends} n1 path-mtu")));
    let mut sizes: Vec<_> = found
        .paths
        .iter()
        .filter(|it| it.what.starts_with("largest"))
        .map(|it| format!("{} {} {}", it.trend, it.subject, it.what))
        .collect();
    sizes.sort();
    let all = ends
        .iter()
        .flat_map(|ends| ["back", "there"].map(|way| format!("worse {ends} n1 largest {way}")));
    assert_eq!(sizes, all.collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_takes_less_than_the_other_is_no_finding_of_its_path() {
    let Some(cluster) = Cluster::new("end", &["a", "b"], 2).await else {
        return;
    };
    cluster.run("b", "ip link set n1 mtu 1500");
    let view = cluster.asked("a", &[]).await;
    assert_eq!(view.paths.len(), 4);
    assert_eq!(findings(&view.paths), NOTHING);
    let short = view.paths.iter().filter(|path| path.near.nic == "n1");
    for path in short {
        assert_eq!(path.there.get().unwrap().size, 1500, "{path:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_one_way_is_found_from_both_ends_and_takes_no_size_for_smaller() {
    let Some(cluster) = Cluster::new("loss", &["a", "b", "c"], 2).await else {
        return;
    };
    cluster.lose("b1", 5);
    let view = cluster.asked("a", &[]).await;
    let all = ["a>b", "b>a", "b>c", "c>b"];
    assert_eq!(
        findings(&view.paths),
        all.map(|pair| format!("path-loss {pair} n1"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_by_another_interface_is_found_where_it_is_and_by_where_its_answers_arrive() {
    let Some(cluster) = Cluster::new("route", &["a", "b", "c"], 2).await else {
        return;
    };
    cluster.run("b", "ip route add 10.78.1.1/32 dev n0");
    let view = cluster.asked("c", &[]).await;
    let found = findings(&view.paths);
    assert_eq!(found, ["path-arrival a>b n1", "path-route b>a n1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_by_another_interface_than_the_one_that_is_claimed_is_found_by_what_it_counts()
{
    let Some(cluster) = Cluster::new("counted", &["a", "b"], 2).await else {
        return;
    };
    // One switch for both networks, and a takes n0 of b for who has the address of n1.
    for command in [
        "ip link add j0 mtu 9000 type veth peer name j1 mtu 9000",
        "ip link set j0 master br0 up",
        "ip link set j1 master br1 up",
    ] {
        cluster.run(SWITCH, command);
    }
    for host in ["a", "b"] {
        cluster.run(host, "sysctl -qw net.ipv4.conf.all.arp_ignore=1");
    }
    let mac = "02:00:00:00:0b:00";
    cluster.run("b", &format!("ip link set n0 address {mac}"));
    for (nic, address) in [("n0", "10.78.0.2"), ("n1", "10.78.1.2")] {
        let known = format!("ip neigh replace {address} lladdr {mac} dev {nic}");
        cluster.run("a", &known);
    }
    let view = cluster.asked("a", &[]).await;
    let found = findings(&view.paths);
    assert_eq!(found, ["path-arrival b>a n1", "path-counted a>b n1"]);
    let findings = examine(&[], &view.paths).findings;
    let read = &findings[1].found.read;
    assert!(read.contains("n1 of b received"), "{read}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_on_which_nothing_comes_back_is_found_and_the_agents_ask_over_the_other() {
    let Some(cluster) = Cluster::new("silent", &["a", "b"], 2).await else {
        return;
    };
    cluster.run(SWITCH, "ip link set b1 nomaster");
    let view = cluster.asked("a", &[]).await;
    let all = ["path-reach a>b n1", "path-reach b>a n1"];
    assert_eq!(findings(&view.paths), all);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_without_a_path_and_a_member_without_an_agent_are_named() {
    let Some(mut cluster) = Cluster::new("named", &["a", "b", "c"], 2).await else {
        return;
    };
    cluster.kill("c");
    // Of a it is an interface alone; that of b has no hardware, and is nobody's without an address.
    cluster.run("a", "ip link set n1 down");
    cluster.run("b", "ip addr flush dev n1");
    let view = cluster.asked("a", &[]).await;
    let silent: Vec<_> = view
        .left_out
        .iter()
        .map(|left| left.host.as_str())
        .collect();
    assert_eq!(silent, ["c"]);
    assert_eq!(findings(&view.paths), NOTHING);
    assert_eq!(view.paths.len(), 2);
    let left: Vec<_> = view
        .paths_left_out
        .iter()
        .map(|left| {
            let nic = left.nic.as_deref().unwrap();
            (left.near.as_str(), left.far.is_none(), nic)
        })
        .collect();
    assert_eq!(left, [("a", true, "n1")]);
    assert!(view.paths_left_out[0].why.contains("is down"), "{view:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answerer_that_dies_is_no_loss() {
    let Some(mut cluster) = Cluster::new("dies", &["a", "b"], 2).await else {
        return;
    };
    // Asking takes seconds then.
    cluster.lose("b0", 4);
    cluster.lose("b1", 4);
    let begun = |cluster: &Cluster| {
        let log = cluster.log("b");
        log.matches("answers questions about paths").count()
    };
    let view = loop {
        let client = cluster.client("a");
        let b = "b".parse().unwrap();
        let before = begun(&cluster);
        let asked = tokio::spawn(async move { client.ask_paths(&b, None, None).await });
        let deadline = Instant::now() + PATIENCE;
        while begun(&cluster) == before {
            assert!(Instant::now() < deadline, "{}", cluster.log("b"));
            tokio::time::sleep(SOON).await;
        }
        // It says so to who asks in a moment.
        tokio::time::sleep(SOON).await;
        cluster.kill("b");
        match asked.await.unwrap() {
            Ok(view) => break view,
            // It died before it could say that it answers them.
            Err(early) => {
                let words = early.to_string();
                assert!(words.starts_with("host b: "), "{words}");
                cluster.start("b").await;
            }
        }
    };
    let report = examine(&[], &view.paths);
    assert_eq!(report.findings, [], "{view:#?}");
    assert!(!report.skipped.is_empty(), "{view:#?}");
    for skipped in report.skipped {
        assert!(skipped.because.contains("did not say"), "{skipped:?}");
    }
    // And the one that is back has nothing of it.
    cluster.start("b").await;
    let b = "b".parse().unwrap();
    let again = cluster.client("a").ask_paths(&b, None, None).await.unwrap();
    assert_eq!(again.paths.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn across_networks_every_pair_is_knocked_at_and_hosts_without_any_path_are_named() {
    let Some(cluster) = Cluster::new("across", &["a", "b"], 2).await else {
        return;
    };
    // Other networks than b's; the second one alone has a way there.
    cluster.run("a", "ip addr add 10.79.0.1/32 dev n0");
    cluster.run("a", "ip addr del 10.78.1.1/24 dev n1");
    cluster.run("a", "ip addr add 10.79.1.1/24 dev n1");
    cluster.run("b", "ip addr del 10.78.1.2/24 dev n1");
    cluster.run("b", "ip addr add 10.80.1.2/24 dev n1");
    let ask = async || {
        let b = "b".parse().unwrap();
        cluster.client("a").ask_paths(&b, None, None).await.unwrap()
    };
    let of_n1 = |view: &PathsView| view.paths.iter().any(|path| path.near.nic == "n1");
    let dead = ask().await;
    assert!(!of_n1(&dead), "{dead:#?}");
    assert_eq!(dead.left_out[0].nic.as_deref(), Some("n1"), "{dead:#?}");
    cluster.run("a", "ip route add 10.80.1.0/24 dev n1");
    cluster.run("b", "ip route add 10.79.1.0/24 dev n1");
    let alive = ask().await;
    assert!(of_n1(&alive), "{alive:#?}");
    assert_eq!(findings(&alive.paths), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_hangs_after_the_look_holds_nobody_else_up() {
    let Some(cluster) = Cluster::new("hangs", &["a", "b", "c", "d"], 1).await else {
        return;
    };
    // Asking takes seconds then.
    for port in ["a0", "b0", "c0", "d0"] {
        cluster.lose(port, 8);
    }
    let client = cluster.client("a");
    let all = ClusterPathsRequest::default();
    let asked = tokio::spawn(async move { client.cluster_paths(&all).await });
    let deadline = Instant::now() + PATIENCE;
    while !cluster.log("d").contains("paths are to be asked") {
        assert!(Instant::now() < deadline, "{}", cluster.log("d"));
        tokio::time::sleep(SOON).await;
    }
    cluster.hang("d");
    let view = asked.await.unwrap().unwrap();
    let pairs: std::collections::BTreeSet<_> = view
        .paths
        .iter()
        .map(|path| (path.near.host.as_str(), path.far.host.as_str()))
        .collect();
    for pair in [
        ("a", "b"),
        ("a", "c"),
        ("b", "a"),
        ("b", "c"),
        ("c", "a"),
        ("c", "b"),
    ] {
        assert!(pairs.contains(&pair), "{pair:?}: {view:#?}");
    }
    let left: Vec<_> = view.paths_left_out.iter().map(|left| &left.why).collect();
    assert!(!left.is_empty(), "{view:#?}");
    assert!(
        !left.iter().any(|why| why.contains("all together")),
        "{left:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn interfaces_upon_one_port_are_told_to_share_its_line_and_all_are_asked() {
    let Some(cluster) = Cluster::new("upon", &["a", "b"], 2).await else {
        return;
    };
    // As VLANs are, which not every kernel has.
    for (host, number) in [("a", 1), ("b", 2)] {
        // They are on one network: none is to answer for the addresses of another.
        cluster.run(host, "sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        for upon in [10, 20] {
            for command in [
                format!("ip link add link n0 name m{upon} type macvlan mode bridge"),
                format!("ip addr add 10.79.{upon}.{number}/24 dev m{upon}"),
                format!("ip link set m{upon} up"),
            ] {
                cluster.run(host, &command);
            }
        }
    }
    let request = AnswererRequest {
        askers: vec!["10.78.0.1".parse().unwrap()],
        time_s: 1,
        load: false,
        part_of: None,
        only_load: false,
    };
    let ordered = cluster.client("b").order_answerer(&request).await.unwrap();
    let ports: Vec<_> = ordered
        .ports
        .iter()
        .filter(|(nic, _)| *nic != "lo")
        .map(|(nic, ports)| format!("{nic} on {}", ports.iter().cloned().collect::<String>()))
        .collect();
    assert_eq!(ports, ["m10 on n0", "m20 on n0", "n0 on n0", "n1 on n1"]);
    let view = cluster.asked("a", &["a", "b"]).await;
    assert_eq!(view.paths.len(), 8);
    assert_eq!(findings(&view.paths), NOTHING);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_opened_for_hosts_and_for_nobody_else() {
    let Some(cluster) = Cluster::new("opens", &["a", "b"], 1).await else {
        return;
    };
    let ends = OpenEnds {
        from: "10.78.0.1".parse().unwrap(),
        to: "10.78.0.2:22".parse().unwrap(),
    };
    let request = OpenRequest { ends: vec![ends] };
    let refused = cluster.client("a").open(&request).await.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::NotAPeer), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_asks_no_path_to_itself() {
    let Some(cluster) = Cluster::new("self", &["a", "b"], 1).await else {
        return;
    };
    let refused = cluster
        .client("a")
        .ask_paths(&"a".parse().unwrap(), None, None)
        .await;
    let refused: ClientError = refused.unwrap_err();
    assert!(refused.is_refused_with(ErrorCode::SameHost), "{refused}");
}

/// Prints how long it takes.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures: run it by its name, with --no-capture, on a machine that does nothing else"]
async fn sixteen_hosts_ask_all_their_paths() {
    let names = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p",
    ];
    let Some(cluster) = Cluster::new("all", &names, 2).await else {
        return;
    };
    for _ in 0..3 {
        let begun = Instant::now();
        let view = cluster.asked("a", &[]).await;
        let took = begun.elapsed();
        let report = examine(&[], &view.paths);
        println!(
            "{} paths of {} hosts in {took:?}; findings: {}, skipped: {}, left out: {}",
            view.paths.len(),
            names.len(),
            report.findings.len(),
            report.skipped.len(),
            view.paths_left_out.len() + view.left_out.len(),
        );
        assert_eq!(view.paths.len(), 480);
    }
}
