//! What is refused, and changes nothing.

use std::fs;

use drover_api::{ChangeState, ClientError, CordonRequest, ErrorCode, LinkRequest, LinkSetting};
use drover_change::{Plan, Planned};
use drover_tune::{Disruption, NicSetting, Step};
use drover_types::ChangeId;

use crate::host::Host;

pub fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> (ErrorCode, String) {
    let error = answer.unwrap_err();
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
    (refusal.code, refusal.message.clone())
}

/// The same plan for smaller packets of an interface instead.
fn smaller_packets(plan: &str) -> String {
    let step = Step::Nic {
        nic: "nic0".into(),
        what: NicSetting::Mtu,
        from: "9000".into(),
        to: "1500".into(),
    };
    let changes = vec![Planned {
        rule: "path-mtu".into(),
        nic: Some("nic0".into()),
        disruption: Disruption::BouncesLink,
        why: "larger ones vanish".into(),
        steps: vec![step],
    }];
    let plan = drover_change::read(plan).unwrap();
    drover_change::write(&Plan { changes, ..plan }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_does_not_fit_is_refused_with_the_reason_and_changes_nothing() {
    let Some(host) = Host::new("refuse").await else {
        return;
    };
    let plan = host.plan().await;
    let before = host.facts().await;
    for (from, to, why) in [
        ("host = \"a\"", "host = \"z\"", "for z"),
        ("boot = \"", "boot = \"x", "restarted since"),
        ("version = \"", "version = \"9", "version 9"),
        ("tcp_timestamps\"", "tcp_sack\"", "which no rule sets"),
        ("host", "ghost", "no plan of changes"),
    ] {
        let (code, message) = refused(host.apply(&plan.replacen(from, to, 1)).await);
        assert_eq!(code, ErrorCode::ChangePlanUnusable, "{message}");
        assert!(message.contains(why), "{message}");
    }
    let (code, _) = refused(host.undo(ChangeId(uuid::Uuid::nil())).await);
    assert_eq!(code, ErrorCode::NoSuchChange);
    assert_eq!(host.client().changes().await.unwrap(), []);

    // What has moved since the plan was made is seen right before it would be changed.
    host.network
        .on_a("sysctl -qw net.ipv4.tcp_window_scaling=1");
    let moved = host.facts().await;
    let id = host.apply(&plan).await.unwrap().id;
    let view = host.ended(id).await;
    assert_eq!(view.state, ChangeState::Refused, "{view:#?}");
    let why = view.why.unwrap();
    assert!(
        why.contains("net.ipv4.tcp_window_scaling is \"1\""),
        "{why}"
    );
    assert_eq!(host.facts().await, moved);
    assert_ne!(moved, before);
    let (code, message) = refused(host.undo(id).await);
    assert_eq!(code, ErrorCode::NotUndoable);
    assert!(message.contains("refused"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_bounced_only_on_a_drained_host_or_by_force() {
    let Some(host) = Host::new("bounce").await else {
        return;
    };
    let plan = smaller_packets(&host.plan().await);
    let before = host.facts().await;
    let (code, message) = refused(host.apply(&plan).await);
    assert_eq!(code, ErrorCode::NotDrained);
    assert!(message.contains("a takes guests"), "{message}");
    assert_eq!(host.facts().await, before);
    let forced = host.apply_with(&plan, true).await.unwrap().id;
    assert_eq!(host.ended(forced).await.state, ChangeState::Applied);
    host.undo(forced).await.unwrap();
    host.client()
        .cordon(&CordonRequest::default())
        .await
        .unwrap();
    let id = host.apply(&plan).await.unwrap().id;
    // Until it is at its end no guest is to come.
    let (code, message) = refused(host.client().uncordon().await);
    assert_eq!(code, ErrorCode::ChangeUnderWay);
    let says =
        format!("links of a may go for some seconds just now, and guests with them: change {id}");
    assert!(message.starts_with(&says), "{message}");
    let applied = host.ended(id).await;
    assert_eq!(applied.state, ChangeState::Applied, "{applied:#?}");
    assert_eq!(host.facts().await.nic("nic0").unwrap().mtu, 1500);

    // A process that is to undo it has the lock before it has written so, and its agent may be gone.
    let lock = fs::File::open(host.folder(id).with_file_name("lock")).unwrap();
    lock.lock().unwrap();
    let (code, message) = refused(host.client().uncordon().await);
    assert_eq!(code, ErrorCode::ChangeUnderWay);
    assert!(message.contains("may be undone"), "{message}");
    drop(lock);

    // Nor is it set back on a host that takes guests.
    host.client().uncordon().await.unwrap();
    let request = drover_api::UndoRequest { force: false };
    let (code, _) = refused(host.client().undo_change(applied.id, &request).await);
    assert_eq!(code, ErrorCode::NotDrained);
    let undone = host.undo(applied.id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone);
    assert_eq!(host.facts().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_change_at_a_time_and_what_somebody_else_has_set_since_stays() {
    let Some(host) = Host::new("one").await else {
        return;
    };
    let before = host.facts().await;
    let plan = host.plan().await;
    let first = host.apply(&plan).await.unwrap().id;
    let (code, message) = refused(host.apply(&plan).await);
    assert_eq!(code, ErrorCode::ChangeUnderWay, "{message}");
    assert_eq!(host.ended(first).await.state, ChangeState::Applied);

    host.network.on_a("sysctl -qw net.ipv4.tcp_timestamps=2");
    let meddled = host.facts().await;
    let (code, message) = refused(host.undo(first).await);
    assert_eq!(code, ErrorCode::NotUndoable);
    assert!(message.contains("tcp_timestamps is \"2\""), "{message}");
    assert_eq!(host.facts().await, meddled, "nothing of it was undone");
    host.network.on_a("sysctl -qw net.ipv4.tcp_timestamps=1");
    host.undo(first).await.unwrap();
    assert_eq!(host.facts().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_change_that_nobody_can_read_keeps_others_from_beginning_until_it_is_removed()
 {
    let Some(host) = Host::new("broken").await else {
        return;
    };
    let plan = host.plan().await;
    let first = host.applied(&plan).await;
    host.undo(first.id).await.unwrap();
    let journal = host.folder(first.id).join("journal");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, [b"nonsense\n", &whole[..]].concat()).unwrap();

    // As an agent leaves it that dies before the order is there; and what is no change at all.
    let unbegun = host.folder(ChangeId(uuid::Uuid::nil()));
    fs::create_dir(&unbegun).unwrap();
    fs::create_dir(unbegun.with_file_name("notes")).unwrap();

    let (code, message) = refused(host.apply(&plan).await);
    assert_eq!(code, ErrorCode::ChangeUnderWay);
    assert!(message.contains("not known what is left"), "{message}");
    let [shown] = &host.client().changes().await.unwrap()[..] else {
        panic!("one is unreadable, and the others are none");
    };
    assert_eq!(shown.state, ChangeState::Unreadable);
    assert!(shown.why.as_ref().unwrap().contains("line 1"), "{shown:#?}");
    fs::remove_dir_all(host.folder(first.id)).unwrap();
    let id = host.apply(&plan).await.unwrap().id;
    assert_eq!(host.ended(id).await.state, ChangeState::Applied);
    host.when_gone(&unbegun).await;
    assert!(unbegun.with_file_name("notes").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_of_which_it_is_not_known_what_it_can_is_not_set() {
    let Some(host) = Host::new("link").await else {
        return;
    };
    let before = host.facts().await;
    for (nic, to, code, why) in [
        (
            "nobody",
            "10G",
            ErrorCode::NoSuchNic,
            "no interface \"nobody\"",
        ),
        ("nic0", "fast", ErrorCode::LinkNotSet, "no rate of a link"),
        // A cable between two namespaces has none.
        (
            "nic0",
            "10G",
            ErrorCode::LinkNotSet,
            "its driver tells no rates",
        ),
    ] {
        let request = LinkRequest {
            nic: nic.into(),
            setting: LinkSetting::Speed,
            to: to.into(),
            force: true,
        };
        let (refused, message) = refused(host.client().set_link(&request).await);
        assert_eq!(refused, code, "{message}");
        assert!(message.contains(why), "{message}");
    }
    assert_eq!(host.client().changes().await.unwrap(), []);
    assert_eq!(host.facts().await, before);
}
