//! What paths carry, measured by loading them.

use drover_api::{ClusterPathsRequest, ClusterPathsView, LoadRequest};
use drover_tune::examine;
use drover_tune::facts::{Carried, Path};

use super::cluster::{Cluster, SWITCH};

const MBIT: u64 = 1_000_000;

async fn loaded(cluster: &Cluster, share: Option<u8>) -> ClusterPathsView {
    let time_ms = 500;
    let request = ClusterPathsRequest {
        load: Some(LoadRequest { time_ms, share }),
        ..ClusterPathsRequest::default()
    };
    cluster.client("a").cluster_paths(&request).await.unwrap()
}

/// Of the path from that host.
fn carried(view: &ClusterPathsView, near: &str) -> Carried {
    let found = view.paths.iter().find(|path| path.near.host == near);
    *found.unwrap().carried.as_ref().unwrap().get().unwrap()
}

fn is_found(path: &Path) -> bool {
    let report = examine(&[], std::slice::from_ref(path));
    report
        .findings
        .iter()
        .any(|finding| finding.rule == "path-rate")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_switch_that_carries_less_than_its_links_say_is_found() {
    let Some(cluster) = Cluster::new("load", &["a", "b"], 1).await else {
        return;
    };
    cluster.run(
        SWITCH,
        "tc qdisc add dev b0 root tbf rate 300mbit burst 256kb latency 50ms",
    );
    let view = loaded(&cluster, None).await;
    assert_eq!(view.paths.len(), 2, "{view:#?}");
    let there = carried(&view, "a");
    assert_eq!((there.line, there.allowed), (Some(10_000 * MBIT), None));
    // The bucket's 256 KiB come on top.
    assert!((1..310 * MBIT).contains(&there.rate), "{there:?}");
    let slow = view.paths.iter().find(|path| path.near.host == "a");
    assert!(is_found(slow.unwrap()), "{view:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_takes_no_more_of_a_line_than_it_may_and_is_held_against_that() {
    let Some(cluster) = Cluster::new("share", &["a", "b"], 1).await else {
        return;
    };
    let view = loaded(&cluster, Some(1)).await;
    for near in ["a", "b"] {
        let one = carried(&view, near);
        assert_eq!(one.allowed, Some(100 * MBIT));
        assert!((1..130 * MBIT).contains(&one.rate), "{one:?}");
    }
    // Nothing of it is left: the next one is let in like the first.
    let again = loaded(&cluster, Some(1)).await;
    assert!(carried(&again, "b").rate > 0);
}
