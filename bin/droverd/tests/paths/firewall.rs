//! Hosts between which one UDP port alone is open, as is documented.

use drover_api::AnswererRequest;
use drover_tune::examine;

use super::cluster::{Cluster, findings};

const OPEN: u16 = 7471;

#[tokio::test(flavor = "multi_thread")]
async fn a_second_order_behind_a_firewall_is_no_finding_and_does_not_pass_for_nothing_wrong() {
    let more = format!("[migration]\ndata_port = {OPEN}\n");
    let Some(cluster) = Cluster::with("second", &["a", "b"], 1, &more).await else {
        return;
    };
    for rule in [
        "add table inet wall".to_owned(),
        "add chain inet wall in { type filter hook input priority 0; }".to_owned(),
        // Of two ports in one rule nft makes one comparison, and `!=` would be that of both together.
        format!("add rule inet wall in udp dport != {OPEN} drop"),
    ] {
        cluster.run("b", &format!("nft {rule}"));
    }
    let b = "b".parse().unwrap();
    let first = cluster.client("a").ask_paths(&b, None, None).await.unwrap();
    assert_eq!(findings(&first.paths), super::NOTHING);
    let request = AnswererRequest {
        askers: vec!["10.78.0.9".parse().unwrap()],
        time_s: 60,
        load: false,
        part_of: None,
        only_load: false,
    };
    let other = cluster.client("b").order_answerer(&request).await.unwrap();
    let has_it = other.at.iter().any(|at| at.to_string() == "10.78.0.2:7471");
    assert!(has_it, "{other:?}");
    let second = cluster.client("a").ask_paths(&b, None, None).await.unwrap();
    let report = examine(&[], &second.paths);
    assert_eq!(report.findings, [], "{second:#?}");
    let reach = report.skipped.iter().find(|it| it.rule == "path-reach");
    let because = &reach.unwrap().because;
    assert!(because.contains("as 7471 was taken"), "{because}");
    let left = &second.left_out[0];
    assert!(left.nic.is_none() && left.why.contains("7471"), "{left:?}");
}
