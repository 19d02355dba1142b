//! Agents and QEMUs of other versions.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::net::SocketAddr;
use std::path::PathBuf;

use drover_api::{
    Client, Encryption, ErrorCode, IncomingRequest, LaneSecurity, MigrateRequest, MigrationPhase,
    ProtocolRange, SessionSizes, VmDefinition,
};
use drover_lab::{Monitor, monitor_socket};
use drover_trust::{Armed, Store, Trust, system_clock};
use drover_types::{AtDeadline, Bytes, Convergence, MigrationId};
use hosts::peer::{FakeAgent, on};
use hosts::{A, B, FAST, Hosts, PATIENCE, name, refused, set};
use serde_json::json;

/// A host with its guest, and none that answers on the other.
async fn alone(test: &str) -> Option<Hosts> {
    let mut hosts = Hosts::new(test, FAST).await?;
    hosts.start_agent(A).await;
    hosts.boot().await;
    Some(hosts)
}

/// What the destination says of itself, with these versions.
async fn introduction(hosts: &Hosts, protocol: ProtocolRange) -> serde_json::Value {
    let mut view = hosts.client(A).host().await.unwrap();
    view.host = "b".parse().unwrap();
    view.version = "9.9.9".to_owned();
    view.protocol = protocol;
    serde_json::to_value(view).unwrap()
}

const NEWER: ProtocolRange = ProtocolRange { min: 98, max: 99 };

/// What a refusal says of the versions of the agent under test.
async fn speaks(hosts: &Hosts) -> String {
    let own = hosts.client(A).host().await.unwrap().protocol;
    format!("a speaks {} to {}", own.min, own.max)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_of_another_version_is_refused_before_it_is_asked_for_anything() {
    let Some(mut hosts) = alone("newer").await else {
        return;
    };
    let introduction = introduction(&hosts, NEWER).await;
    let answer = move |_: &str| (200, introduction.clone());
    let fake = FakeAgent::start(&hosts.host(B), answer).await;
    let (code, message) = refused(hosts.migrate(A).await);
    assert_eq!(code, ErrorCode::VersionMismatch, "{message}");
    let speaks = speaks(&hosts).await;
    for word in [speaks.as_str(), "b speaks 98 to 99", "newer version"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(fake.calls(), ["GET /v1/host"]);
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_offers_what_was_not_agreed_on_is_told_to_give_up() {
    let Some(mut hosts) = alone("offers").await else {
        return;
    };
    let own = hosts.client(A).host().await.unwrap();
    let introduction = introduction(&hosts, own.protocol).await;
    let id = MigrationId(uuid::Uuid::nil());
    let answer = move |call: &str| match call {
        "GET /v1/host" => (200, introduction.clone()),
        "POST /v1/incoming" => {
            let session = json!({"chunk_bytes": 65536, "window": 16, "channels_max": 4});
            let offer = json!({
                "id": id, "protocol": 99, "interfaces": [], "session": session,
                "token": "0".repeat(64), "data_port": 7471, "cpus": 1,
                "lanes": {"encryption": "on", "certificate": "0".repeat(64)},
                "outage_limit_s": 30, "qemu_version": "10.0.0", "notes": [],
            });
            (200, offer)
        }
        _ => (200, json!({"id": id, "vm": "guest", "phase": "abandoned"})),
    };
    let fake = FakeAgent::start(&hosts.host(B), answer).await;
    let (code, message) = refused(hosts.migrate(A).await);
    assert_eq!(code, ErrorCode::VersionMismatch, "{message}");
    assert!(message.contains("b speaks 99 to 99"), "{message}");
    let calls = fake.calls();
    assert!(calls.last().unwrap().ends_with("/abandon"), "{calls:?}");
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_of_another_version_is_refused_and_nothing_is_started() {
    let Some(hosts) = alone("older").await else {
        return;
    };
    let mut definition = hosts.guest.as_ref().unwrap().definition.clone();
    definition.name = "visitor".parse().unwrap();
    let request = IncomingRequest {
        id: MigrationId(uuid::Uuid::now_v7()),
        source: "b".parse().unwrap(),
        definition,
        domain: None,
        disks: Vec::new(),
        protocol: NEWER,
        reduction: None,
        session: SessionSizes {
            chunk_bytes: 65536,
            window: 16,
            channels_max: 4,
        },
        lanes: LaneSecurity {
            encryption: Encryption::On,
            verify: false,
            certificate: "0".repeat(64),
        },
        keeps: None,
        interfaces: Vec::new(),
        cpus: 1,
        channels: None,
        downtime_limit_ms: 300,
        outage_limit_s: 30,
    };
    let agent = SocketAddr::new(hosts.host(A).address(0).into(), 7470);
    let b = hosts.host(B);
    let stored = Store::below(&b.state()).load().unwrap().unwrap();
    let credentials = stored.credentials().unwrap();
    let trust = Trust::of(Armed::operator(&credentials, &system_clock()).unwrap());
    let client = Client::host_at("a".parse().unwrap(), vec![agent], trust);
    let asked = on(&b, move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(client.incoming(&request))
    });
    let (code, message) = refused(asked.await);
    assert_eq!(code, ErrorCode::VersionMismatch, "{message}");
    let speaks = speaks(&hosts).await;
    for word in [speaks.as_str(), "b speaks 98 to 99"] {
        assert!(message.contains(word), "{message}");
    }
    let status = hosts.status(A).await;
    assert_eq!(status.vms.len(), 1, "{status:#?}");
    assert_eq!(status.migrations, []);
    hosts.guest_runs_only_on(A).await;
}

/// Where the content is put in the memory of a guest without a kernel, above what firmware uses.
const CONTENT_AT: u64 = 16 << 20;
const CONTENT: usize = 8 << 20;
const PAGE: usize = 4096;

/// A guest that runs its firmware, in whose memory QEMU puts the host's own file at its start: so
/// that content which is the source's has been carried. (QEMU 7.2 damages a working guest that is
/// emulated while it moves.)
fn firmware_guest(hosts: &Hosts, qemu: PathBuf) -> VmDefinition {
    let here = hosts.lab().here();
    let loader = format!(
        "loader,file={},addr={CONTENT_AT},force-raw=on",
        here.join("content").display()
    );
    let monitor = here.join(monitor_socket(&name()));
    let watch = format!(
        "socket,id=watch,path={},server=on,wait=off",
        monitor.display()
    );
    let args = [
        "-nodefaults",
        "-display",
        "none",
        "-accel",
        "tcg",
        "-device",
        &loader,
        "-chardev",
        &watch,
        "-mon",
        "chardev=watch,mode=control",
    ];
    VmDefinition {
        name: name(),
        memory: Bytes(64 << 20),
        vcpus: 1,
        qemu,
        machine: Some("q35".to_owned()),
        args: args.map(str::to_owned).into(),
        convergence: drover_types::Convergence::default(),
        checkpoint: true,
        policy: drover_plan::policy::VmPolicy::default(),
    }
}

/// What a host's guest has in its memory.
async fn memory(hosts: &Hosts, host: usize) -> Vec<u8> {
    let socket = hosts.host(host).socket(&monitor_socket(&name()));
    let monitor = Monitor::connect(&socket, PATIENCE).await.unwrap();
    let file = hosts.lab().folder().join("memory");
    let what = json!({"val": CONTENT_AT, "size": CONTENT, "filename": file});
    monitor.run("pmemsave", what).await.unwrap();
    std::fs::read(&file).unwrap()
}

/// What the guest is filled with.
fn content() -> Vec<u8> {
    let words = (0..CONTENT / 8).flat_map(|n| (n * 0x9e37_79b9).to_le_bytes());
    words.collect()
}

/// Hosts with the oldest QEMU, and a guest that runs on the first and is filled there alone.
async fn of_the_oldest(test: &str) -> Option<Hosts> {
    let qemu = hosts::qemu_7_2()?;
    let mut hosts = Hosts::new(test, FAST).await?;
    let allowed = qemu.to_str().unwrap().to_owned();
    for host in [A, B] {
        hosts.configure(host, |config| set(config, "qemu", "binaries", [&allowed]));
        hosts.start_agent(host).await;
    }
    std::fs::write(hosts.host(A).socket("content"), content()).unwrap();
    std::fs::write(hosts.host(B).socket("content"), vec![0; CONTENT]).unwrap();
    let definition = firmware_guest(&hosts, qemu);
    hosts.define(A, &definition);
    hosts.client(A).start_vm(&name()).await.unwrap();
    Some(hosts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_the_oldest_qemu_moves_to_and_fro() {
    let Some(mut hosts) = of_the_oldest("oldest").await else {
        return;
    };
    let content = content();
    for (from, to) in [(A, B), (B, A)] {
        hosts.move_from(from).await;
        hosts.guest_is_only_on(to).await;
        assert!(
            memory(&hosts, to).await == content,
            "the guest's memory is another"
        );
        // What the host itself would have put there.
        std::fs::write(hosts.host(from).socket("content"), vec![0; CONTENT]).unwrap();
        let vm = hosts.client(to).vm(&name()).await.unwrap();
        let version = vm.qemu_version.unwrap();
        assert!(version.starts_with("7.2"), "{version}");
    }
}

/// Pages that may cross before the source has heard which are there: those of one chunk.
const AT_ONCE: usize = (256 << 10) / PAGE;

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_of_the_oldest_qemu_that_moves_over_one_channel_finds_its_pages_when_it_comes_back()
{
    let Some(hosts) = of_the_oldest("oldestone").await else {
        return;
    };
    let content = content();
    for (from, stored) in [(A, 0), (B, 0), (A, CONTENT / PAGE - AT_ONCE)] {
        let request = MigrateRequest {
            reduction: Some("pages".parse().unwrap()),
            with_disks: false,
            convergence: Convergence {
                deadline_s: Some(600.try_into().unwrap()),
                at_deadline: Some(AtDeadline::Postcopy),
                ..Convergence::default()
            },
            ..hosts.request(from, None)
        };
        let asked = hosts.client(from).migrate(&name(), &request).await;
        let view = hosts.ended(from, asked.unwrap().id).await;
        assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
        assert_eq!(view.channels, Some(0), "{view:#?}");
        assert!(
            memory(&hosts, 1 - from).await == content,
            "the guest's memory is another"
        );
        let reduction = view.reduction.clone().unwrap();
        assert!(reduction.opaque.is_empty(), "{view:#?}");
        let pages = reduction.pages;
        assert!(pages.stored >= stored as u64, "{view:#?}");
        let ours = pages.stored + pages.ordinary + pages.dense;
        assert!(ours >= (CONTENT / PAGE) as u64, "{view:#?}");
        std::fs::write(hosts.host(from).socket("content"), vec![0; CONTENT]).unwrap();
    }
}
