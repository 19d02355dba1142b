use super::*;
use serde_json::json;

fn sharing(config: LimitsConfig) -> (Sharing, tempfile::TempDir) {
    let state = tempfile::tempdir().unwrap();
    (Sharing::open(config, state.path()).unwrap(), state)
}

fn limit(text: &str) -> Option<Limit> {
    Some(text.parse().unwrap())
}

fn request(scope: LimitScope, limit: Option<Limit>) -> LimitRequest {
    LimitRequest { scope, limit }
}

/// A guest that leaves, over one path without a lane.
pub(super) fn moving() -> MigrationView {
    serde_json::from_value(json!({
        "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "source": "a",
        "destination": "b", "role": "source", "phase": "transferring",
        "started_at": "2026-11-21T20:00:00Z", "round": 1, "rate": 0,
        "bytes": {"total": 0, "transferred": 0, "remaining": 0},
        "traffic": {"sent_bytes": 0, "resent_bytes": 0, "protocol_bytes": 0, "received_bytes": 0,
                    "rate": 500},
        "paths": [{"path": {"id": 0, "mtu": 1500, "rate": 1_000_000_000,
                            "source": {"interface": "lo", "address": "127.0.0.1"},
                            "destination": {"interface": "lo", "address": "127.0.0.1"}},
                   "lanes": []}],
        "left_out": [], "notes": [],
    }))
    .unwrap()
}

#[tokio::test]
async fn what_is_changed_stands_in_place_of_what_is_configured_and_outlives_the_agent() {
    let config = LimitsConfig {
        host: limit("5gbit"),
        nics: BTreeMap::from([("eth1".to_owned(), limit("50%").unwrap())]),
    };
    let (sharing, state) = sharing(config.clone());
    let all = Selection::default();
    let lifted = request(LimitScope::Host, None);
    sharing.set(&lifted, &[], &all).await.unwrap();
    let nic = || LimitScope::Nic { nic: "lo".into() };
    let set = request(nic(), limit("200mbit"));
    sharing.set(&set, &[], &all).await.unwrap();
    let again = Sharing::open(config.clone(), state.path()).unwrap();
    assert_eq!(again.host(), None);
    assert_eq!(again.nics().len(), 2);
    let list = again.list(&[], &all).await;
    assert_eq!((list[0].limit, list[0].configured), (None, limit("5gbit")));
    assert_eq!(list[2].bits_per_second, Some(BitRate(200_000_000)));
    // Back to what is configured is no change any more.
    let back = request(LimitScope::Host, limit("5gbit"));
    again.set(&back, &[], &all).await.unwrap();
    again.set(&request(nic(), None), &[], &all).await.unwrap();
    let list = again.list(&[], &all).await;
    assert_eq!((list[0].limit, list[0].configured), (limit("5gbit"), None));
    assert_eq!(list.len(), 2, "{list:#?}");
}

#[tokio::test]
async fn limits_of_what_is_not_there_or_of_unknown_rate_are_refused() {
    let (sharing, _state) = sharing(LimitsConfig::default());
    let all = Selection::default();
    let nic = |nic: &str| LimitScope::Nic { nic: nic.into() };
    let migration = MigrationId::from_bytes([1; 16]);
    let cases = [
        (nic("none9"), "1gbit", "none9; there are"),
        (nic("lo"), "50%", "does not tell the link's rate"),
        (LimitScope::Migration { migration }, "1gbit", "under way"),
    ];
    for (scope, text, expected) in cases {
        let request = request(scope, limit(text));
        let refused = sharing.set(&request, &[moving()], &all).await.unwrap_err();
        assert!(refused.message.contains(expected), "{refused}");
    }
    assert!(sharing.list(&[], &all).await.is_empty());
}

#[tokio::test]
async fn a_migration_can_be_limited_in_percent_of_its_paths_until_it_ends() {
    let (sharing, _state) = sharing(LimitsConfig::default());
    let (all, view) = (Selection::default(), moving());
    let migration = view.id;
    let set = request(LimitScope::Migration { migration }, limit("10%"));
    sharing
        .set(&set, std::slice::from_ref(&view), &all)
        .await
        .unwrap();
    let list = sharing.list(&[view], &all).await;
    assert_eq!(list[0].bits_per_second, Some(BitRate(100_000_000)));
    assert_eq!(list[0].out, ByteRate(500));
    sharing.keep_only(&[]);
    assert!(sharing.list(&[], &all).await.is_empty());
}
