use super::*;

#[test]
fn an_event_is_kind_time_and_words_at_one_level() {
    let at = "2026-11-21T20:00:00Z".parse().unwrap();
    let kind = EventKind::LaneLost {
        lane: 3,
        path: PathId(1),
        reason: "reset".into(),
    };
    let event = EventView::new(at, kind);
    let json = serde_json::to_value(&event).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "at": "2026-11-21T20:00:00Z", "count": 1, "kind": "lane-lost", "lane": 3,
            "path": 1, "reason": "reset", "text": "lane 3 on path 1 was lost: reset",
        })
    );
    assert_eq!(serde_json::from_value::<EventView>(json).unwrap(), event);
}

#[test]
fn a_lost_path_is_told_with_its_interfaces() {
    let nics = Some(NicPair {
        source: "eth1".into(),
        destination: "ens2".into(),
    });
    let (path, reason) = (PathId(1), "eth1 is down".into());
    let lost = EventKind::PathLost { path, nics, reason };
    let told = "path 1 (eth1 > ens2) has no lane left, and is dialled again: eth1 is down";
    assert_eq!(lost.to_string(), told);
}

#[test]
fn an_event_of_a_newer_agent_keeps_its_words() {
    let text = r#"{"at": "2026-11-21T20:00:00Z", "count": 2, "kind": "moon-phase",
                   "text": "full", "phase": 7}"#;
    let event: EventView = serde_json::from_str(text).unwrap();
    assert_eq!(event.kind, EventKind::Unknown);
    assert_eq!((event.text.as_str(), event.count), ("full", 2));
}
