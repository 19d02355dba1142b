use super::*;
use serde_json::{Value, json};

fn view(more: Value) -> Value {
    let mut value = json!({
        "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "source": "a",
        "destination": "b", "role": "source", "phase": "transferring",
        "started_at": "2026-11-21T20:00:00Z",
        "bytes": {"total": 1 << 30, "transferred": 640 << 20, "remaining": 256 << 20},
        "round": 2, "rate": 238 << 20, "dirty_rate": 16 << 20, "time_left_ms": 3100,
        "paths": [], "left_out": [], "notes": [],
    });
    for (key, new) in more.as_object().unwrap() {
        value[key] = new.clone();
    }
    value
}

fn status(migrations: Vec<Value>) -> StatusView {
    serde_json::from_value(json!({
        "host": {
            "host": "a", "version": "0", "api_version": 1, "protocol": {"min": 2, "max": 2},
            "memory": {"total": 1 << 30, "available": 1 << 29}, "cpus": 2, "qemu_binaries": [],
            "interfaces": [{"name": "eth1", "addresses": ["10.0.1.1/24"], "mtu": 9000, "up": true,
                "speed": 1_000_000_000, "loopback": false, "tx_queues": 1, "rx_queues": 1,
                "rdma": null}],
        },
        "vms": [], "migrations": migrations, "peers": [],
    }))
    .unwrap()
}

fn carrying() -> Value {
    let lane = |id: u16, more: Value| {
        let mut lane = json!({
            "id": id, "state": "up", "sent_bytes": 300 << 20, "resent_bytes": 0,
            "protocol_bytes": 4 << 10, "received_bytes": 0, "rate": 50 << 20,
            "round_trip_us": 250, "busy_rate": 60 << 20, "in_flight_bytes": 512 << 10,
            "credit_bytes": 1 << 20, "suspicions": 0,
            "tcp": {"round_trip_us": 180, "retransmits": 7, "delivery_rate": 60 << 20,
                    "congestion_window": 40, "segment_bytes": 8948},
        });
        for (key, new) in more.as_object().unwrap() {
            lane[key] = new.clone();
        }
        lane
    };
    let lost = json!({"state": "lost", "rate": 0, "suspicions": 2, "resent_bytes": 1 << 20,
                      "ended_reason": "nothing came back for 1000 ms", "in_flight_bytes": 0, "tcp": null});
    let traffic = json!({"sent_bytes": 600 << 20, "resent_bytes": 1 << 20,
                         "protocol_bytes": 8 << 10, "received_bytes": 0, "rate": 50 << 20});
    view(json!({
        "paths": [{
            "path": {"id": 0, "mtu": 9000, "rate": 1_000_000_000,
                     "source": {"interface": "eth1", "address": "10.0.1.1"},
                     "destination": {"interface": "ens2", "address": "10.0.1.2"}},
            "lanes": [lane(0, json!({})), lane(1, lost)],
            "traffic": traffic, "suspicions": 5, "retransmits": 9,
        }],
        "traffic": traffic,
        "nics": [{"interface": "eth1", "traffic": traffic, "lanes_up": 1, "round_trip_us": 250,
                  "credit_bytes": 1 << 20, "retransmits": 9,
                  "placement": {"nodes": [1], "cpus": "16-31,48-63"}}],
        "channel_traffic": [
            {"id": 0, "read_bytes": 1 << 20, "confirmed_bytes": 0, "written_bytes": 900},
            {"id": 1, "read_bytes": 299 << 20, "confirmed_bytes": 0, "written_bytes": 0},
            {"id": 2, "read_bytes": 300 << 20, "confirmed_bytes": 0, "written_bytes": 0},
        ],
        "hedged_chunks": 3,
        "data_path": {"kind": "splice"},
        "notes": ["lane 1 on path 0 was lost: nothing came back for 1000 ms"],
    }))
}

#[test]
fn a_migration_under_way_is_shown_by_path_lane_nic_and_channel() {
    let status = status(vec![carrying()]);
    let text = of_status(&status);
    let (_, text) = text.split_once("\n\n").unwrap();
    insta::assert_snapshot!(text);
}

#[test]
fn a_nic_whose_lanes_are_not_placed_is_shown_with_the_reason() {
    let mut view = carrying();
    view["nics"][0]["placement"] = json!({"why_not": "the host has one NUMA node"});
    let text = of_status(&status(vec![view]));
    let told = "not placed, because the host has one NUMA node\n";
    assert!(text.ends_with(told), "{text}");
}

#[test]
fn the_destination_shows_what_it_received() {
    let mut view = carrying();
    view["role"] = json!("destination");
    let text = of_status(&status(vec![view]));
    assert!(text.contains("RECEIVED"), "{text}");
}

#[test]
fn checksums_that_were_asked_for_are_shown_beside_the_reason_for_copying() {
    let mut view = carrying();
    view["verify"] = json!(true);
    view["data_path"] = json!({"kind": "copy", "why": "verify is on"});
    let text = of_status(&status(vec![view]));
    let line = "\n  data path: copy, because verify is on; verify: on\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn what_processors_are_held_to_is_shown_with_how_long_they_slept_or_with_the_reason_why_not() {
    let mut view = carrying();
    view["cpu_latency"] = json!({"held_us": 20});
    view["idle_states"] = json!([
        {"state": "C1", "latency_us": 2, "time_ms": 3540},
        {"state": "C6", "latency_us": 133, "time_ms": 0},
    ]);
    let text = of_status(&status(vec![view.clone()]));
    let line = "\n  CPU latency: held at 20 us; slept C1 (2 us) 3.5 s, C6 (133 us) 0.0 s\n";
    assert!(text.contains(line), "{text}");
    view["cpu_latency"] = json!({"why_not": "there is no device", "fallback": true});
    view["idle_states"] = json!([]);
    let text = of_status(&status(vec![view]));
    let line = "\n  CPU latency: not held, because there is no device\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn interrupts_that_were_moved_are_shown_by_nic_in_one_line() {
    let mut view = carrying();
    view["interrupts"] = json!([
        {"interface": "eth1", "moved": 16, "cpus": "16-31,48-63"},
        {"interface": "eth2", "moved": 0, "why_not": "it is virtual"},
    ]);
    let text = of_status(&status(vec![view]));
    let line = "\n  interrupts: eth1: 16 moved to CPUs 16-31,48-63; eth2: not moved, because it is virtual\n";
    assert!(text.contains(line), "{text}");
}

#[test]
fn of_many_that_ended_only_the_last_are_shown() {
    let ended = view(json!({"phase": "completed", "total_ms": 3250}));
    let text = of_status(&status(vec![ended; 9]));
    assert_eq!(text.matches("completed").count(), ENDED_SHOWN, "{text}");
    assert!(text.contains("and 4 more that ended: `drover history`"));
    assert!(!text.contains("NICs"), "{text}");
}

#[test]
fn what_was_refused_is_counted_and_takes_no_place_of_what_ended() {
    let refused = view(json!({"phase": "refused", "cause": "b is cordoned"}));
    let told = "2 refused, with nothing changed: `drover history`\n";
    let text = of_status(&status(vec![refused.clone(); 2]));
    assert_eq!(text, format!("none\n{told}"));
    let ended = view(json!({"phase": "completed"}));
    let text = of_status(&status(vec![refused.clone(), refused, ended]));
    assert!(text.contains("completed") && text.ends_with(told), "{text}");
    assert!(!text.contains("b is cordoned"), "{text}");
}

#[test]
fn of_many_lanes_only_those_with_trouble_are_shown() {
    let mut view = carrying();
    let lanes = view["paths"][0]["lanes"].as_array().unwrap().clone();
    let mut many = vec![lanes[0].clone(); 40];
    many.push(lanes[1].clone());
    view["paths"][0]["lanes"] = json!(many);
    let text = of_status(&status(vec![view]));
    assert!(!text.contains("  lane 0"), "{text}");
    assert!(
        text.contains("  lane 1") && text.contains("40 of 41 up"),
        "{text}"
    );
}

#[test]
fn what_protected_a_migration_is_listed() {
    let told = [
        json!("tls13-aes128gcm"),
        json!("off"),
        json!(null),
        json!("quantum"),
    ];
    let views =
        told.map(|encryption| view(json!({"phase": "completed", "encryption": encryption})));
    let text = of_status(&status(views.into()));
    let column: Vec<_> = text
        .lines()
        .filter_map(|line| line.split_whitespace().rev().nth(1))
        .collect();
    assert_eq!(
        column,
        ["ENCRYPTION", "tls13-aes128gcm", "off", "-", "unknown"],
        "{text}"
    );
}

#[test]
fn a_hand_off_in_doubt_is_shown_with_what_is_not_known_and_the_command() {
    let command = "drover resolve web --give-up --other-host-is-off";
    let doubt = json!({
        "since": "2026-11-21T20:00:00Z", "heard_at": "2026-11-21T19:59:00Z",
        "unknown": "whether b runs the guest", "commands": [command],
    });
    let in_doubt = view(json!({"phase": "handing-off", "ambiguity": doubt}));
    let text = of_status(&status(vec![in_doubt]));
    for words in [
        "IN DOUBT whether b runs the guest: b has not answered for",
        command,
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn what_was_resolved_is_shown_until_the_other_host_has_heard_of_it() {
    let resolved = |told: &str| {
        let resolution =
            json!({"resolution": "give-up", "at": "2026-11-21T20:00:00Z", "told": told});
        let view = view(json!({"phase": "given-up", "resolution": resolution}));
        of_status(&status(vec![view]))
    };
    let words = "b has not confirmed yet that it heard of `give-up`";
    assert!(resolved("pending").contains(words));
    assert!(resolved("conflict").contains(words));
    assert!(!resolved("confirmed").contains(words));
}

/// What a source tells of bytes that it reduced.
fn reduction() -> Value {
    json!({
        "mode": "auto", "kept_most": 1 << 28, "raw_bytes": 640 << 20, "wire_bytes": 160 << 20,
        "pages": {"zero": 70, "filled": 10, "same": 20, "stored": 30, "changed": 40, "ordinary": 50, "dense": 60},
        "change_bytes": 4096, "ordinary": {"bytes": 400 << 20, "packed": 120 << 20},
        "dense": {"bytes": 40 << 20, "packed": 40 << 20},
        "codecs": [
            {"codec": "lz4", "class": "ordinary", "bytes": 300 << 20, "packed": 100 << 20, "took_ms": 840},
            {"codec": "none", "class": "dense", "bytes": 40 << 20, "packed": 40 << 20, "took_ms": 10},
        ],
        "times": {"lines_ms": 1, "destination_ms": 2, "hypervisor_ms": 3, "processors_ms": 4, "describing_ms": 5,
                  "packing_ms": 850, "trying_ms": 7, "carrying_ms": 8},
    })
}

fn expansion() -> Value {
    json!({
        "chunks": 9, "raw_bytes": 640 << 20, "wire_bytes": 160 << 20, "passed_bytes": 0,
        "times": {"unpacking_ms": 240, "fetching_ms": 0, "expanding_ms": 120, "checking_ms": 60, "storing_ms": 0,
                  "processors_ms": 0, "hypervisor_ms": 1950},
    })
}

#[test]
fn what_codecs_made_of_which_bytes_and_what_the_destination_took_for_them_is_shown() {
    let mut view = carrying();
    view["reduction"] = reduction();
    let text = of_status(&status(vec![view.clone()]));
    let line = "\n    codecs: lz4 300 MiB to 100 MiB (34 %) in 0.8 s, none 40 MiB of dense pages\n";
    assert!(text.contains(line), "{text}");
    view["reduction"] = json!(null);
    view["role"] = json!("destination");
    view["expansion"] = expansion();
    let text = of_status(&status(vec![view]));
    let line = "\n  expansion: 160 MiB became 640 MiB\n    threads unpacked 0.2 s,";
    assert!(text.contains(line), "{text}");
}

#[test]
fn of_what_ended_the_bytes_that_moved_and_crossed_are_shown_and_a_line_tells_why_they_differ() {
    let traffic = json!({"sent_bytes": 160 << 20, "resent_bytes": 0, "protocol_bytes": 0, "received_bytes": 0, "rate": 0});
    let left = view(
        json!({"phase": "completed", "traffic": traffic, "reduction": reduction(),
        "shared_pages": {"told": 70, "added": 80, "left_out": 1}}),
    );
    let arrived = view(
        json!({"phase": "running", "role": "destination", "expansion": expansion(),
        "channel_traffic": [{"id": 0, "read_bytes": 0, "confirmed_bytes": 0, "written_bytes": 160 << 20}],
        "shared_pages": {"told": 70, "found": 25, "found_in_checkpoint": 5, "added": 0, "left_out": 0}}),
    );
    let text = of_status(&status(vec![left, arrived]));
    assert_eq!(text.matches("640 MiB  160 MiB").count(), 2, "{text}");
    for line in [
        "\nweb from a to b: reduction: auto: 640 MiB became 160 MiB (25 %); pages: 70 zero, 10 filled, 20 there already, 30 \
         shared, 40 changed, 50 ordinary, 60 dense; shared pages: 70 known to the source, 80 added, 1 left out\n",
        "\nweb from a to b: expansion: 160 MiB became 640 MiB; shared pages: 70 known to the source, 25 found among \
         them, 5 found in its checkpoint\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}
