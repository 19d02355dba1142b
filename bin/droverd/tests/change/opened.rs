//! That other hosts open connections to this one after a change as before: between hosts with agents, where something keeps those out that come
//! from outside, and not those that go there.

use drover_api::ChangeState;
use drover_change::Account;

use crate::cluster::Cluster;
use crate::host::signal;
use crate::sizes::timestamps;

/// What comes to `a` by `n1` of itself is kept out so; what answers is not.
fn shut(how: &str) -> [String; 3] {
    [
        "nft add table inet shut".to_owned(),
        "nft add chain inet shut input { type filter hook input priority 0 ; }".to_owned(),
        format!("nft add rule inet shut input iifname n1 tcp flags & (syn | ack) == syn {how}"),
    ]
}

const STAMPS: &str = "net.ipv4.tcp_timestamps";

async fn hosts(test: &str) -> Option<Cluster> {
    let cluster = Cluster::new(test, &["a", "b"], 2).await?;
    cluster.run("a", &format!("sysctl -qw {STAMPS}=0"));
    Some(cluster)
}

async fn stamps(cluster: &Cluster) -> String {
    let facts = cluster.client("a").facts().await.unwrap().facts;
    facts.setting(STAMPS).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_connections_of_others_out_is_taken_back_though_this_host_opens_its_own()
 {
    kept_out("shut", "drop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_refuses_connections_of_others_is_not_taken_for_the_kernel_of_this_host() {
    kept_out("refused", "reject with tcp reset").await;
}

async fn kept_out(test: &str, how: &str) {
    let Some(cluster) = hosts(test).await else {
        return;
    };
    let id = cluster.stopped(&timestamps()).await;
    let account = Account::read(&cluster.folder(id)).unwrap();
    assert_eq!(account.standing.opened, account.standing.paths);
    assert_eq!(account.standing.unopened, [""; 0]);
    // As if by the setting.
    for line in shut(how) {
        if let Err(why) = cluster.try_run("a", &line) {
            println!("skipped, because {line} is not done here: {why}");
            signal(&cluster.folder(id), "-CONT");
            return;
        }
    }
    assert!(signal(&cluster.folder(id), "-CONT"));
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::RolledBack, "{view:#?}");
    assert_eq!((view.change.paths, view.change.opened), (2, 2));
    let why = view.change.why.unwrap();
    let shut = "did not for 20 s: a connection that b opens from 10.78.1.2 to 10.78.1.1 of n1";
    assert!(why.ends_with(shut), "{why}");
    assert_eq!(stamps(&cluster).await, "0");

    // What is shut before is said, and costs no change.
    let id = cluster.apply(timestamps()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!((view.change.paths, view.change.opened), (2, 1));
    let [why] = &view.not_opened[..] else {
        panic!("{view:#?}");
    };
    assert!(
        why.ends_with("of n1: none was opened before, either"),
        "{why}"
    );
    assert_eq!(stamps(&cluster).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_other_agent_answers_it_is_said_that_nobody_opened_a_connection() {
    let Some(mut cluster) = hosts("unopened").await else {
        return;
    };
    cluster.kill("b");
    let id = cluster.apply(timestamps()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!((view.change.paths, view.change.opened), (2, 0));
    let [why] = &view.not_opened[..] else {
        panic!("{view:#?}");
    };
    assert!(why.contains("host b"), "{why}");
}
