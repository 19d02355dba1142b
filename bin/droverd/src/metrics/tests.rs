use super::*;
use crate::libvirt::Seen;
use crate::libvirt::tests::{domain, lost, seen, untold};
use drover_api::MemoryView;
use drover_libvirt::DomainState;
use drover_relay::Cause;
use serde_json::json;

fn view(phase: &str) -> MigrationView {
    let traffic = json!({"sent_bytes": 600, "resent_bytes": 7, "protocol_bytes": 8,
                         "received_bytes": 0, "rate": 50});
    serde_json::from_value(json!({
        "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "source": "a",
        "destination": "b", "role": "source", "phase": phase,
        "started_at": "2026-11-21T20:00:00Z", "ended_at": "2026-11-21T20:00:20Z",
        "bytes": {"total": 1000, "transferred": 640, "remaining": 250}, "downtime_ms": 85,
        "round": 2, "throttle_percent": 20, "rate": 238, "dirty_rate": 16, "time_left_ms": 3100, "traffic": traffic,
        "paths": [{
            "path": {"id": 0, "mtu": 9000, "rate": 1_000_000_000,
                     "source": {"interface": "eth1", "address": "10.0.1.1"},
                     "destination": {"interface": "ens2", "address": "10.0.1.2"}},
            "traffic": traffic,
            "lanes": [{"id": 0, "state": "up", "sent_bytes": 600, "resent_bytes": 7,
                       "protocol_bytes": 8, "received_bytes": 0, "rate": 50,
                       "round_trip_us": 250, "in_flight_bytes": 5, "credit_bytes": 9,
                       "tcp": {"round_trip_us": 180, "retransmits": 7, "delivery_rate": 60,
                               "congestion_window": 40, "segment_bytes": 8948}},
                      {"id": 1, "state": "lost", "sent_bytes": 0, "resent_bytes": 0,
                       "protocol_bytes": 0, "received_bytes": 0, "rate": 0}],
            "limit": 70, "state": "up", "suspicions": 2, "retransmits": 9,
        }],
        "nics": [{"interface": "eth1", "traffic": traffic, "lanes_up": 1, "round_trip_us": 250,
                  "credit_bytes": 9, "retransmits": 9}],
        "limit": 80, "encryption": "off", "data_path": {"kind": "splice"}, "cpu_latency": {"held_us": 20},
        "interrupts": [{"interface": "eth1", "moved": 16, "cpus": "4-7"}, {"interface": "eth2", "moved": 8, "cpus": "0-3"}],
        "channel_traffic": [{"id": 0, "read_bytes": 1, "confirmed_bytes": 2, "written_bytes": 3}],
        "reduction": {"mode": "zstd:1", "kept_most": 900, "raw_bytes": 640, "wire_bytes": 160, "change_bytes": 4,
                      "pages": {"zero": 8, "filled": 1, "same": 2, "stored": 6, "stored_changed": 7, "changed": 3, "ordinary": 4, "dense": 5},
                      "ordinary": {"bytes": 500, "packed": 100}, "dense": {"bytes": 50, "packed": 50},
                      "codecs": [{"codec": "zstd:1", "class": "ordinary", "bytes": 400, "packed": 80, "took_ms": 250},
                                 {"codec": "lz4", "class": "ordinary", "bytes": 100, "packed": 20, "took_ms": 10}],
                      "opaque": [{"channel": 2, "why": "from byte 9: x", "word": "version"}, {"channel": 3, "why": "from byte 9: x"},
                                 {"channel": 4, "why": "from byte 9: x", "word": "version"}]},
        "expansion": {"chunks": 2, "raw_bytes": 640, "wire_bytes": 160, "passed_bytes": 0,
                      "times": {"unpacking_ms": 70, "fetching_ms": 0, "expanding_ms": 20, "checking_ms": 10, "storing_ms": 5,
                                "processors_ms": 0, "hypervisor_ms": 900}},
        "shared_pages": {"told": 9, "untold": 7, "found": 4, "found_in_checkpoint": 3, "added": 2, "waiting": 10, "left_out": 1,
                         "recorded": 6, "unrecorded": 5, "compared": 8},
        "relay": {"pid": 4, "resident_bytes": 5000, "cpu_ms": 1500},
        "left_out": [], "notes": [],
    }))
    .unwrap()
}

/// One that is reached, with one domain.
fn libvirt() -> Seen {
    seen(vec![domain("web", DomainState::Running)])
}

fn moment(migrations: Vec<MigrationView>) -> Moment {
    Moment {
        host: "a".parse().unwrap(),
        memory: Some(MemoryView {
            total: drover_types::Bytes(10),
            available: drover_types::Bytes(5),
        }),
        certificate: Some(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000)),
        guests: Vec::new(),
        libvirt: libvirt(),
        migrations,
        limits: serde_json::from_value(json!([
            {"scope": {"of": "host"}, "bits_per_second": 800, "out": 0, "in": 0},
            {"scope": {"of": "nic", "nic": "eth1"}, "bits_per_second": 400, "out": 0, "in": 0},
        ]))
        .unwrap(),
        lanes_refused: [(Cause::Proof, 3)].into(),
        shared_pages: drover_types::Bytes(4096),
        checkpoints: drover_types::Bytes(8192),
        run: Some(RunUnderWay {
            kind: "drain",
            began: Duration::from_secs(1_800_000_000),
        }),
    }
}

/// Metrics of which each has been used once.
fn used() -> Metrics {
    let metrics = Metrics::new();
    metrics.carried("eth1", &view("transferring").traffic);
    let trouble = Trouble {
        lost: 1,
        suspected: 2,
        retransmits: 3,
    };
    metrics.troubled("eth1", trouble);
    metrics.connection_refused("expired");
    metrics.request_refused("host", ErrorCode::BadRequest);
    metrics.outages(1);
    metrics.ended(&view("completed"));
    metrics.run_ended(&RunEnd {
        kind: "drain",
        result: "completed",
        guests: [("moved", 1)].into(),
        phases: [("moving", Duration::from_secs(20))].into(),
    });
    metrics
}

#[test]
fn every_metric_is_documented_with_its_type_and_labels() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/METRICS.md");
    let page = std::fs::read_to_string(path).unwrap();
    let mut documented: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| `drover_"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            format!("{} {} {}", cells[1].trim_matches('`'), cells[2], cells[3])
        })
        .collect();
    documented.sort();
    let text = used().text(&moment(vec![view("transferring")])).unwrap();
    let mut served: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let name = format!("{name}{suffix}");
            let labels = labels_of(&text, &name);
            format!("{name} {kind} {labels}")
        })
        .collect();
    served.sort();
    assert_eq!(documented, served, "docs/METRICS.md is out of date");
}

/// The labels of a metric's first sample, as the page has them.
fn labels_of(text: &str, name: &str) -> String {
    let sample = text.lines().find(|line| {
        let rest = line.strip_prefix(name);
        let rest = rest.map(|rest| rest.strip_prefix("_sum").unwrap_or(rest));
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let sample = sample.unwrap_or_else(|| panic!("{name} has no sample:\n{text}"));
    let Some((_, labels)) = sample.split_once('{') else {
        return String::new();
    };
    let (labels, _) = labels.split_once('}').unwrap();
    let names = labels.split(',').map(|label| {
        let (name, _) = label.split_once('=').unwrap();
        format!("`{name}`")
    });
    names.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_libvirt_that_is_lost_is_told_by_number_and_one_that_is_not_used_not_at_all() {
    let mut moment = moment(Vec::new());
    let text = used().text(&moment).unwrap();
    let connected = "drover_libvirt_connected 1\n";
    let info = "drover_libvirt_info{version=\"9.0.0\",hypervisor=\"7.2.0\"} 1\n";
    let domains = "drover_libvirt_domains{state=\"running\"} 1\n";
    for line in [connected, info, domains] {
        assert!(text.contains(line), "{line}{text}");
    }
    moment.libvirt.contact = lost();
    let text = used().text(&moment).unwrap();
    for line in ["drover_libvirt_connected 0\n", domains] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("drover_libvirt_info"), "{text}");
    moment.libvirt.domains = Some(std::sync::Arc::new(untold("db", 1)));
    let text = used().text(&moment).unwrap();
    let unknown = "drover_libvirt_domains{state=\"unknown\"} 1\n";
    assert!(text.contains(unknown), "{text}");
    moment.libvirt = Seen::off();
    let text = used().text(&moment).unwrap();
    assert!(!text.contains("libvirt"), "{text}");
}

#[test]
fn of_a_migration_that_has_ended_nothing_stays_but_counts() {
    let text = used().text(&moment(vec![view("completed")])).unwrap();
    assert!(!text.contains("web"), "{text}");
    let counted = "drover_migrations_total{role=\"source\",outcome=\"completed\"} 1\n";
    assert!(text.contains(counted), "{text}");
    let zero = "drover_migrations_total{role=\"destination\",outcome=\"abandoned\"} 0\n";
    assert!(text.contains(zero), "{text}");
    assert!(text.contains("drover_nic_payload_bytes_total{nic=\"eth1\",direction=\"out\"} 600\n"));
    assert!(
        text.contains("drover_migration_downtime_seconds_sum 0.085\n"),
        "{text}"
    );
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn what_was_refused_is_counted_apart_from_what_failed() {
    let metrics = used();
    metrics.ended(&view("refused"));
    let text = metrics.text(&moment(Vec::new())).unwrap();
    for (outcome, count) in [("refused", 1), ("failed", 0), ("completed", 1)] {
        let line =
            format!("drover_migrations_total{{role=\"source\",outcome=\"{outcome}\"}} {count}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn a_migration_under_way_is_told_by_the_name_of_its_guest() {
    let text = used().text(&moment(vec![view("transferring")])).unwrap();
    for line in [
        "drover_migration_remaining_bytes{vm=\"web\",role=\"source\",peer=\"b\"} 250.0\n",
        "drover_migration_time_left_seconds{vm=\"web\",role=\"source\",peer=\"b\"} 3.1\n",
        "drover_path_round_trip_seconds{vm=\"web\",role=\"source\",path=\"0\",nic=\"eth1\",\
         peer_nic=\"ens2\"} 0.00025\n",
        "drover_guests{state=\"failed\"} 0\n",
        "drover_lane_state{vm=\"web\",role=\"source\",path=\"0\",nic=\"eth1\",lane=\"1\",\
         state=\"lost\"} 1\n",
        "drover_lane_retransmitted_segments_total{vm=\"web\",role=\"source\",path=\"0\",\
         nic=\"eth1\",lane=\"0\"} 7\n",
        "drover_relay_cpu_seconds_total{vm=\"web\",role=\"source\",peer=\"b\"} 1.5\n",
        "drover_host_limit_bytes_per_second 100.0\n",
        "drover_lanes_refused_total{reason=\"proof\"} 3\n",
        "drover_lanes_refused_total{reason=\"slow\"} 0\n",
        "drover_requests_refused_total{caller=\"host\",code=\"bad-request\"} 1\n",
        "drover_connections_refused_total{reason=\"expired\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
}

#[test]
fn processors_that_are_not_held_awake_have_no_latency_and_interrupts_that_are_left_no_number() {
    let mut view = view("transferring");
    let text = used().text(&moment(vec![view.clone()])).unwrap();
    let held =
        "drover_migration_cpu_latency_seconds{vm=\"web\",role=\"source\",peer=\"b\"} 0.00002\n";
    assert!(text.contains(held), "{text}");
    let moved = "drover_migration_moved_interrupts{vm=\"web\",role=\"source\",peer=\"b\"} 24.0\n";
    assert!(text.contains(moved), "{text}");
    view.interrupts.clear();
    view.cpu_latency =
        serde_json::from_value(json!({"why_not": "no device", "fallback": true})).unwrap();
    let text = used().text(&moment(vec![view])).unwrap();
    assert!(!text.contains("cpu_latency_seconds{"), "{text}");
    assert!(!text.contains("moved_interrupts{"), "{text}");
}

#[test]
fn what_became_of_bytes_and_pages_is_told_by_number() {
    let mut view = view("transferring");
    let reduction = view.reduction.as_mut().unwrap();
    reduction.passed_bytes = drover_types::Bytes(30);
    reduction.kept_bytes = drover_types::Bytes(450);
    reduction.times.packing_ms = 1500;
    let text = used().text(&moment(vec![view])).unwrap();
    let moving = r#"vm="web",role="source",peer="b""#;
    let of = |label: &str| format!(r#"vm="web",peer="b",{label}"#);
    let looked = |pages: &str| format!(r#"{moving},pages="{pages}""#);
    for (name, labels, value) in [
        ("reduction_raw_bytes_total", moving.to_owned(), "640"),
        ("reduction_wire_bytes_total", moving.to_owned(), "160"),
        ("reduction_passed_bytes_total", moving.to_owned(), "30"),
        ("reduction_change_bytes_total", moving.to_owned(), "4"),
        ("reduction_kept_bytes", moving.to_owned(), "450"),
        ("reduction_pages_total", of(r#"pages="zero""#), "8"),
        ("reduction_pages_total", of(r#"pages="filled""#), "1"),
        ("reduction_pages_total", of(r#"pages="same""#), "2"),
        ("reduction_pages_total", of(r#"pages="stored""#), "6"),
        (
            "reduction_pages_total",
            of(r#"pages="stored_changed""#),
            "7",
        ),
        ("reduction_pages_total", of(r#"pages="changed""#), "3"),
        ("reduction_pages_total", of(r#"pages="ordinary""#), "4"),
        ("reduction_pages_total", of(r#"pages="dense""#), "5"),
        (
            "reduction_section_bytes_total",
            of(r#"class="ordinary""#),
            "500",
        ),
        (
            "reduction_packed_bytes_total",
            of(r#"class="ordinary""#),
            "100",
        ),
        (
            "reduction_section_bytes_total",
            of(r#"class="dense""#),
            "50",
        ),
        ("reduction_packed_bytes_total", of(r#"class="dense""#), "50"),
        ("reduction_seconds_total", of(r#"stage="packing""#), "1.5"),
        ("reduction_seconds_total", of(r#"stage="lines""#), "0.0"),
        ("reduction_mode", of(r#"mode="zstd:1""#), "1"),
        (
            "reduction_codec_bytes_total",
            of(r#"class="ordinary",codec="zstd:1""#),
            "400",
        ),
        (
            "reduction_codec_packed_bytes_total",
            of(r#"class="ordinary",codec="lz4""#),
            "20",
        ),
        (
            "reduction_codec_seconds_total",
            of(r#"class="ordinary",codec="zstd:1""#),
            "0.25",
        ),
        ("expansion_raw_bytes_total", moving.to_owned(), "640"),
        ("expansion_wire_bytes_total", moving.to_owned(), "160"),
        (
            "expansion_seconds_total",
            of(r#"stage="unpacking""#),
            "0.07",
        ),
        (
            "expansion_seconds_total",
            of(r#"stage="hypervisor""#),
            "0.9",
        ),
        ("opaque_channels", of(r#"reason="version""#), "2"),
        ("opaque_channels", of(r#"reason="unknown""#), "1"),
        ("stored_pages_total", of(r#"found="shared""#), "4"),
        ("stored_pages_total", of(r#"found="checkpoint""#), "3"),
        ("storing_pages_total", looked("told"), "9"),
        ("storing_pages_total", looked("untold"), "7"),
        ("storing_pages_total", looked("added"), "2"),
        ("storing_pages_total", looked("left_out"), "1"),
        ("storing_pages_total", looked("recorded"), "6"),
        ("storing_pages_total", looked("unrecorded"), "5"),
        ("storing_pages_total", looked("compared"), "8"),
        ("storing_waiting_pages", moving.to_owned(), "10"),
    ] {
        let line = format!("drover_migration_{name}{{{labels}}} {value}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}
