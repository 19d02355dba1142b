use super::*;
use serde_json::json;

fn view(more: serde_json::Value) -> MigrationView {
    let mut value = json!({
        "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "source": "a",
        "destination": "b", "role": "source", "phase": "transferring",
        "started_at": "2026-11-21T20:00:00Z",
        "bytes": {"total": 1000, "transferred": 0, "remaining": 0},
        "round": 0, "rate": 0, "paths": [], "left_out": [], "notes": [],
    });
    for (key, new) in more.as_object().unwrap() {
        value[key] = new.clone();
    }
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_migration_that_has_sent_nothing_shows_an_empty_bar() {
    let view = view(json!({"phase": "connecting"}));
    assert_eq!(position(&view), (0, 1000));
    assert_eq!(lines(&view), ["connecting"]);
}

#[test]
fn progress_tells_phase_bytes_rates_and_time_left() {
    let view = view(json!({
        "bytes": {"total": 1 << 30, "transferred": 640 << 20, "remaining": 256 << 20},
        "round": 2, "rate": 238 << 20, "dirty_rate": 16 << 20, "time_left_ms": 3100,
    }));
    assert_eq!(position(&view), (768 << 20, 1 << 30));
    assert_eq!(
        lines(&view),
        [
            "transferring",
            "640 MiB sent, round 2, 238 MiB/s, dirty 16 MiB/s, 3.1 s left"
        ]
    );
}

#[test]
fn before_memory_the_bar_is_of_disks() {
    let copies = json!({"bytes": {"total": 0, "transferred": 0, "remaining": 0},
        "disks": {"copied": 3_u64 << 30, "total": 4_u64 << 30}});
    let view = view(copies);
    assert_eq!(position(&view), (3 << 30, 4 << 30));
    assert_eq!(lines(&view), ["transferring", "disks 3 GiB of 4 GiB"]);
}

#[test]
fn a_migration_in_hand_off_is_full_even_without_numbers() {
    let view = view(json!({"phase": "handing-off"}));
    assert_eq!(position(&view), (1000, 1000));
}

#[test]
fn each_path_has_a_line_with_its_rate_and_many_are_cut() {
    let lane = |state: &str| {
        json!({"id": 1, "state": state, "sent_bytes": 0, "resent_bytes": 0, "protocol_bytes": 0,
               "received_bytes": 0, "rate": 50 << 20})
    };
    let path = json!({
        "path": {"id": 0, "mtu": 9000, "rate": 1_000_000_000,
                 "source": {"interface": "eth1", "address": "10.0.1.1"},
                 "destination": {"interface": "ens2", "address": "10.0.1.2"}},
        "lanes": [lane("up"), lane("lost")],
    });
    let lines = lines(&view(json!({"paths": vec![path; 10]})));
    assert_eq!(
        lines[1],
        "eth1 > ens2  100 MiB/s (838.9 Mbit/s of 1 Gbit/s), 1 of 2 lanes"
    );
    assert_eq!(lines.len(), 10);
    assert_eq!(lines[9], "and 2 more");
}
