//! Migrations that are refused before anything is changed: the guest does not notice, nothing is
//! left on the destination, and the operator is told what, where and what to do next.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::path::Path;

use drover_api::{CordonRequest, ErrorCode, MigrateRequest, MigrationPhase, StopRequest, VmState};
use hosts::{A, B, FAST, Hosts, SLOW, guest_of, name, refused, set, set_word};

/// Asks for a migration from A that must be refused with this code and these words.
async fn refuses(hosts: &mut Hosts, code: ErrorCode, words: &[&str]) {
    let (found, message) = refused(hosts.migrate(A).await);
    assert_eq!(found, code, "{message}");
    for word in words {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
    assert!(!message.contains("NO NEXT STEP"), "{message}");
    assert!(
        code.is_preflight(),
        "exit code 4 says that nothing was changed"
    );
    let migrations = hosts.client(A).migrations().await.unwrap();
    assert!(
        migrations
            .iter()
            .all(|view| view.phase == MigrationPhase::Refused),
        "{migrations:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_not_configured_is_refused_with_those_that_are() {
    let Some(mut hosts) = Hosts::with_guest("unknown", FAST).await else {
        return;
    };
    for (to, code, word) in [
        ("c", ErrorCode::NoSuchHost, "the others are: b"),
        ("a", ErrorCode::SameHost, "a is this host"),
    ] {
        let request = MigrateRequest {
            to: to.parse().unwrap(),
            convergence: Default::default(),
            channels: None,
            lanes_per_path: None,
            reduction: None,
            with_disks: false,
            id: None,
        };
        let (found, message) = refused(hosts.client(A).migrate(&name(), &request).await);
        assert_eq!(found, code);
        assert!(message.contains(word), "{message}");
    }
    hosts.guest_runs_only_on(A).await;
    assert_eq!(hosts.client(A).migrations().await.unwrap(), []);
    // Neither was it held up for the next.
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_cordoned_takes_no_guest_until_it_is_uncordoned() {
    let Some(mut hosts) = Hosts::with_guest("cordon", FAST).await else {
        return;
    };
    let reason = Some("new memory on Friday".to_owned());
    let request = CordonRequest { reason };
    hosts.client(B).cordon(&request).await.unwrap();
    hosts.kill_agent(B).await;
    hosts.start_agent(B).await;
    let words = [
        "b is cordoned since",
        "new memory on Friday",
        "drover uncordon",
    ];
    refuses(&mut hosts, ErrorCode::HostCordoned, &words).await;

    // What it has stays, and may leave; what it does not run is not started.
    let taken = hosts.client(A).cordon(&CordonRequest::default()).await;
    assert!(taken.unwrap().cordon.is_some());
    hosts.guest_runs_only_on(A).await;
    assert!(hosts.client(B).uncordon().await.unwrap().cordon.is_none());
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    hosts.client(B).stop_vm(&name(), &force).await.unwrap();
    hosts
        .client(B)
        .cordon(&CordonRequest::default())
        .await
        .unwrap();
    let (code, message) = refused(hosts.client(B).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::HostCordoned, "{message}");
    hosts.client(B).uncordon().await.unwrap();
    hosts.client(B).start_vm(&name()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_whose_agent_does_not_run_is_refused_with_its_addresses() {
    let Some(mut hosts) = Hosts::new("noagent", FAST).await else {
        return;
    };
    hosts.start_agent(A).await;
    hosts.boot().await;
    let address = format!("{}:7470", hosts.host(B).address(1));
    let words = [
        "host b",
        &address,
        "refused",
        "check that droverd runs on b",
    ];
    refuses(&mut hosts, ErrorCode::PeerUnreachable, &words).await;
    let status = hosts.status(A).await;
    assert!(!status.peers[0].reachable, "{status:#?}");
    hosts.guest_runs_only_on(A).await;
}

/// A lab whose guest is defined with a QEMU at a path that each host fills differently.
async fn with_own_qemus(test: &str, on_a: &str, on_b: Option<&str>) -> Option<Hosts> {
    let mut hosts = Hosts::new(test, FAST).await?;
    let qemu = hosts.install(A, "qemu", on_a);
    if let Some(on_b) = on_b {
        hosts.install(B, "qemu", on_b);
    }
    for host in [A, B] {
        let allowed = qemu.to_str().unwrap().to_owned();
        hosts.configure(host, |config| set(config, "qemu", "binaries", [&allowed]));
        hosts.start_agent(host).await;
    }
    let mut definition = hosts.definition().await;
    definition.qemu = qemu;
    hosts.boot_from(definition).await;
    Some(hosts)
}

fn wrapper(qemu: &Path) -> String {
    format!("#!/bin/sh\nexec {} \"$@\"\n", qemu.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_the_qemu_binary_is_refused_with_its_path() {
    let Some(qemu) = hosts::qemu().await else {
        return;
    };
    let Some(mut hosts) = with_own_qemus("nobinary", &wrapper(&qemu), None).await else {
        return;
    };
    let path = hosts.lab().here().join("qemu").display().to_string();
    let words = ["on b", &path, "install the QEMU of guest guest on b"];
    refuses(&mut hosts, ErrorCode::QemuMissing, &words).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_the_machine_type_is_refused_with_type_and_binary() {
    let Some(qemu) = hosts::qemu().await else {
        return;
    };
    // A real older QEMU where there is one, else one that says it was older.
    let older = match std::env::var_os("DROVER_QEMU_7_2") {
        Some(older) => wrapper(Path::new(&older)),
        None => "#!/bin/sh\necho 'Supported machines are:'\necho 'pc-q35-7.2 Standard PC'\n".into(),
    };
    let Some(mut hosts) = with_own_qemus("nomachine", &wrapper(&qemu), Some(&older)).await else {
        return;
    };
    let running = hosts.client(A).vm(&name()).await.unwrap().machine.unwrap();
    let path = hosts.lab().here().join("qemu").display().to_string();
    let words = [&running, &path, "on b", "install a newer QEMU on b"];
    refuses(&mut hosts, ErrorCode::MachineTypeMissing, &words).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_qemu_that_the_destination_does_not_let_peers_start_is_refused() {
    let Some(mut hosts) = Hosts::new("notallowed", FAST).await else {
        return;
    };
    hosts.configure(B, |config| set(config, "qemu", "binaries", ["/opt/qemu"]));
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let words = [
        "b does not let peers start",
        "`qemu.binaries` in droverd.toml on b",
    ];
    refuses(&mut hosts, ErrorCode::QemuNotAllowed, &words).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_does_not_know_what_its_libvirt_has_takes_no_guest() {
    let Some(mut hosts) = Hosts::new("libvirt", FAST).await else {
        return;
    };
    // It is named, and not there.
    let uri = "qemu+unix:///system?socket=/no/such/socket";
    hosts.configure(B, |config| set_word(config, "libvirt", "uri", uri));
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let words = [
        "not known whether libvirt has guest",
        "in memory on b, too",
        "`libvirt.uri` in droverd.toml",
    ];
    refuses(&mut hosts, ErrorCode::LibvirtNotKnown, &words).await;
    hosts.guest_runs_only_on(A).await;
    // Nobody uses it there.
    hosts.kill_agent(B).await;
    hosts.configure(B, |config| set_word(config, "libvirt", "uri", "off"));
    hosts.start_agent(B).await;
    hosts.move_from(A).await;
    hosts.guest_runs_only_on(B).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_without_room_is_refused_with_the_numbers() {
    let Some(mut hosts) = Hosts::new("noroom", FAST).await else {
        return;
    };
    hosts.configure(B, |config| {
        config.insert("memory_headroom".into(), "1TiB".into());
    });
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    hosts.boot().await;
    let words = [
        "needs 256 MiB",
        "b has 0 B left",
        "1 TiB are kept free",
        "lower `memory_headroom` in droverd.toml, on b",
    ];
    refuses(&mut hosts, ErrorCode::NotEnoughMemory, &words).await;
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_the_destination_has_already_is_refused_and_neither_is_touched() {
    let Some(mut hosts) = Hosts::with_guest("exists", FAST).await else {
        return;
    };
    let mut own = hosts.guest.as_ref().unwrap().definition.clone();
    own.memory = drover_types::Bytes(64 << 20);
    own.args = ["-nodefaults", "-display", "none", "-accel", "tcg"]
        .map(str::to_owned)
        .into();
    hosts.define(B, &own);
    let words = ["b already has a guest guest, defined in", "remove", "on b"];
    refuses(&mut hosts, ErrorCode::VmExists, &words).await;

    // B refuses to start it while A says that it has it. Where A says nothing, it starts with a note.
    let (code, message) = refused(hosts.client(B).start_vm(&name()).await);
    assert_eq!(code, ErrorCode::VmElsewhere, "{message}");
    for word in [
        "a has a process of guest guest",
        "drover migrate guest --to b",
    ] {
        assert!(message.contains(word), "{message:?} lacks {word:?}");
    }
    hosts.kill_agent(A).await;
    let mut running = hosts.client(B).start_vm(&name()).await.unwrap();
    let notes = std::mem::take(&mut running.notes);
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("a did not say"), "{notes:?}");
    hosts.start_agent(A).await;
    let pid = format!("as process {}", running.pid.unwrap());
    let words = ["b already has a guest guest", &pid, "stop it on b"];
    refuses(&mut hosts, ErrorCode::VmExists, &words).await;
    let after = hosts.client(B).vm(&name()).await.unwrap();
    assert_eq!(after, running);
    hosts.guest_is_whole().await;

    let force = StopRequest {
        force: true,
        timeout_s: None,
    };
    hosts.client(B).stop_vm(&name(), &force).await.unwrap();
    std::fs::remove_file(running.definition.unwrap()).unwrap();
    std::fs::remove_dir_all(hosts.host(B).runtime().join("vms/guest")).unwrap();
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_does_not_run_is_refused() {
    let Some(mut hosts) = Hosts::with_agents("stopped", FAST).await else {
        return;
    };
    let (code, message) = refused(hosts.migrate(A).await);
    assert_eq!(code, ErrorCode::NoSuchVm, "{message}");
    assert!(message.contains("a has no guest guest"), "{message}");
    let definition = hosts.definition().await;
    hosts.define(A, &definition);
    let words = ["guest guest does not run", "drover vm start guest"];
    refuses(&mut hosts, ErrorCode::VmNotRunning, &words).await;
    assert_eq!(hosts.left_on(B).await, Vec::<String>::new());
    let status = hosts.status(A).await;
    assert_eq!(guest_of(&status).unwrap().state, VmState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_migrates_already_can_neither_be_migrated_started_nor_stopped() {
    let Some(mut hosts) = Hosts::with_guest("busy", SLOW).await else {
        return;
    };
    let id = hosts.migrate_midway(A).await;
    let stop = StopRequest::default();
    let (a, b) = (hosts.client(A).clone(), hosts.client(B).clone());
    for attempt in [
        refused(hosts.migrate(A).await),
        refused(a.stop_vm(&name(), &stop).await),
        refused(b.start_vm(&name()).await),
        refused(b.stop_vm(&name(), &stop).await),
    ] {
        assert_eq!(attempt.0, ErrorCode::MigrationUnderWay, "{}", attempt.1);
        assert!(attempt.1.contains(&id.to_string()), "{}", attempt.1);
        assert!(attempt.1.contains("drover cancel guest"), "{}", attempt.1);
    }
    let (source, destination) = (hosts.status(A).await, hosts.status(B).await);
    let leaving = guest_of(&source).unwrap();
    assert_eq!(
        (leaving.state, leaving.migration),
        (VmState::Running, Some(id))
    );
    let arriving = guest_of(&destination).unwrap();
    assert_eq!(
        (arriving.state, arriving.migration),
        (VmState::Incoming, Some(id))
    );
    let view = hosts.ended(A, id).await;
    assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
    hosts.guest_runs_only_on(B).await;
}
