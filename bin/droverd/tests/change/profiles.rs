//! What is to last of an interface that NetworkManager sets up: with the real one, on a host of its own, by what it says of the profile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use drover_api::{ChangeRequest, ChangeState, ChangeView, ErrorCode};
use drover_change::{LastingFile, Plan, Planned, Record};
use drover_tune::{Disruption, NicSetting, Step};
use drover_types::ChangeId;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::host::Host;
use crate::refusals::refused;

mod deaths;
mod keys;

/// Where `scripts/setup --for-tests` puts it.
const UNPACKED: &str = "/var/cache/drover-lab/network-manager";
const PROFILE: &str = "/etc/NetworkManager/system-connections/lan.nmconnection";
/// As somebody has written it.
const TEXT: &str = include_str!("profiles/lan.nmconnection");

/// For anything to happen on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A host whose `nm0` is NetworkManager's, by a profile of 1500 bytes a packet.
struct Managed {
    host: Host,
    programs: Vec<Child>,
}

impl Managed {
    async fn new(test: &str) -> Option<Self> {
        if !Path::new(UNPACKED)
            .join("usr/sbin/NetworkManager")
            .is_file()
        {
            println!(
                "skipped, because there is no NetworkManager in {UNPACKED}: run scripts/setup --for-tests"
            );
            return None;
        }
        let mut host = Host::new(test).await?;
        host.kill_agent();
        host.network
            .on_a("ip link add nm0 type veth peer name nm1 && ip link set nm1 up");
        host.has_own_folders();
        let mut managed = Self {
            host,
            programs: Vec::new(),
        };
        let bus =
            "exec dbus-daemon --nofork --nopidfile --config-file=/etc/NetworkManager/bus.conf";
        managed.run(bus);
        managed.when(|_| managed.socket().exists());
        // Where /sys cannot be written it does not wait for udev, which knows nothing of a namespace.
        managed.run(&format!(
            "mount -o remount,ro,bind /sys && exec {UNPACKED}/usr/sbin/NetworkManager --no-daemon"
        ));
        managed.when(|managed| {
            managed
                .nmcli("-t -f RUNNING general")
                .is_ok_and(|out| out == "running")
        });
        managed.nmcli("connection up lan").unwrap();
        managed.host.start().await;
        Some(managed)
    }

    fn run(&mut self, line: &str) {
        let mut log = fs::OpenOptions::new();
        let log = log.create(true).append(true);
        let log = log.open(self.host.place.path("programs-log")).unwrap();
        let mut command = with_libraries(self.host.command(line));
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap());
        self.programs.push(command.stderr(log).spawn().unwrap());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.host.place.path("programs-log")).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.host.place.path("host-run/dbus/system_bus_socket")
    }

    fn when(&self, is_so: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{}", self.log());
            std::thread::sleep(POLL);
        }
    }

    /// What `nmcli` says, or its refusal.
    fn nmcli(&self, words: &str) -> Result<String, String> {
        let line = format!("exec {UNPACKED}/usr/bin/nmcli {words}");
        let done = with_libraries(self.host.command(&line)).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        match done.status.success() {
            true => Ok(said(&done.stdout)),
            false => Err(said(&done.stderr)),
        }
    }

    /// What NetworkManager knows of the profile.
    fn knows(&self, property: &str) -> String {
        self.nmcli(&format!("-g {property} connection show lan"))
            .unwrap()
    }

    /// The activation of the interface: another one each time, and its state.
    fn activation(&self) -> String {
        self.nmcli("-g GENERAL.STATE,GENERAL.CON-PATH device show nm0")
            .unwrap()
    }

    fn file(&self) -> PathBuf {
        self.host
            .place
            .path("host-etc")
            .join(&PROFILE["/etc/".len()..])
    }

    fn text(&self) -> String {
        assert_eq!(
            fs::metadata(self.file()).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        let beside = fs::read_dir(self.file().parent().unwrap()).unwrap();
        assert_eq!(beside.count(), 1, "nothing is beside it");
        fs::read_to_string(self.file()).unwrap()
    }

    /// Has it take smaller packets, and go on to; at its beginning.
    async fn order(&self) -> ChangeId {
        let request = ChangeRequest {
            plan: smaller_packets(),
            // No host is drained here.
            force: true,
            persist: true,
        };
        self.host.order(request).await.unwrap().id
    }

    async fn persist(&self) -> ChangeView {
        let id = self.order().await;
        self.host.ended(id).await
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        for mut program in self.programs.drain(..).rev() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Host {
    /// Folders of its own where NetworkManager reads and writes, with a bus and a profile.
    fn has_own_folders(&mut self) {
        let [etc, run, lib] =
            ["host-etc", "host-run", "host-lib"].map(|name| self.place.path(name));
        let copied = Command::new("cp")
            .arg("-a")
            .args([Path::new("/etc"), &etc])
            .status();
        assert!(copied.unwrap().success());
        fs::create_dir_all(run.join("dbus")).unwrap();
        fs::create_dir(&lib).unwrap();
        let own = etc.join("NetworkManager");
        let _ = fs::remove_dir_all(&own);
        fs::create_dir_all(own.join("system-connections")).unwrap();
        fs::write(own.join("bus.conf"), include_str!("profiles/bus.conf")).unwrap();
        let about = include_str!("profiles/NetworkManager.conf");
        fs::write(own.join("NetworkManager.conf"), about).unwrap();
        let profile = own.join("system-connections/lan.nmconnection");
        fs::write(&profile, TEXT).unwrap();
        fs::set_permissions(&profile, fs::Permissions::from_mode(0o600)).unwrap();
        self.mounts
            .extend([(etc, "/etc"), (run, "/run"), (lib, "/var/lib")]);
    }
}

fn with_libraries(mut command: Command) -> Command {
    let libraries = format!("{UNPACKED}/usr/lib/x86_64-linux-gnu");
    command.env("LD_LIBRARY_PATH", libraries);
    command
}

/// The profile after it.
fn written() -> String {
    TEXT.replace("mtu=1500", "mtu=1400")
}

/// A plan that has `nm0` take 1400 bytes a packet, and go on to.
fn smaller_packets() -> String {
    let step = Step::Nic {
        nic: "nm0".into(),
        what: NicSetting::Mtu,
        from: "1500".into(),
        to: "1400".into(),
    };
    let file = LastingFile {
        by: "NetworkManager".into(),
        file: PROFILE.into(),
        was: format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(TEXT))),
        goes: vec!["mtu=1500".into()],
        comes: vec!["mtu=1400".into()],
    };
    let plan = Plan {
        host: "a".parse().unwrap(),
        boot: drover_host::boot_id(Path::new("/")).unwrap(),
        made_at: Timestamp::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        changes: vec![Planned {
            rule: "a-rule".into(),
            nic: Some("nm0".into()),
            disruption: Disruption::BouncesLink,
            why: "it is to be tried".into(),
            steps: vec![step],
        }],
        lasting: Some(vec![file]),
    };
    drover_change::write(&plan).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_is_written_network_manager_has_it_and_nothing_is_activated_and_undo_puts_it_back_to_the_byte()
 {
    let Some(managed) = Managed::new("nm").await else {
        return;
    };
    let (facts, activation) = (managed.host.facts().await, managed.activation());
    assert!(activation.starts_with("100 (connected)"), "{activation}");
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1500");
    let view = managed.persist().await;
    assert_eq!(
        (view.state, view.files),
        (ChangeState::Applied, 1),
        "{view:#?}"
    );
    assert_eq!(managed.text(), written());
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1400");
    assert_eq!(managed.host.facts().await.nic("nm0").unwrap().mtu, 1400);
    assert_eq!(managed.activation(), activation);
    let undone = managed.host.undo(view.id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    assert_eq!(managed.text(), TEXT);
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1500");
    assert_eq!(managed.activation(), activation);
    assert_eq!(managed.host.facts().await, facts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_somebody_edits_afterwards_keeps_what_was_written_and_is_not_put_back() {
    let Some(managed) = Managed::new("nmedit").await else {
        return;
    };
    let view = managed.persist().await;
    assert_eq!(view.state, ChangeState::Applied, "{view:#?}");
    managed
        .nmcli("connection modify lan ipv4.dns 10.79.0.9")
        .unwrap();
    let theirs = managed.text();
    assert!(theirs.contains("dns=10.79.0.9"), "{theirs}");
    assert!(theirs.contains("mtu=1400"), "{theirs}");
    let (code, message) = refused(managed.host.undo(view.id).await);
    assert_eq!(code, ErrorCode::NotUndoable, "{message}");
    assert!(message.contains("its text is another one"), "{message}");
    assert_eq!(managed.text(), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_somebody_has_changed_in_memory_alone_is_not_called_undone() {
    let Some(managed) = Managed::new("nmover").await else {
        return;
    };
    let view = managed.persist().await;
    assert_eq!(view.state, ChangeState::Applied, "{view:#?}");
    managed
        .nmcli("connection modify --temporary lan ipv4.dns 10.79.0.9")
        .unwrap();
    let (code, message) = refused(managed.host.undo(view.id).await);
    assert_eq!(code, ErrorCode::NotUndoable, "{message}");
    let over = "NetworkManager goes by /run/NetworkManager/system-connections/";
    assert!(message.contains(over), "{message}");
    assert_eq!(managed.text(), written());
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1400");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_manager_that_stands_still_has_all_taken_back_and_is_named_and_one_that_is_gone_is_not_missed()
 {
    let Some(mut managed) = Managed::new("nmstill").await else {
        return;
    };
    let id = managed.order().await;
    // Once it has said which version it is.
    managed.signal("-STOP");
    let view = managed.host.ended(id).await;
    assert_eq!(view.state, ChangeState::InDoubt, "{view:#?}");
    assert_eq!(managed.text(), TEXT);
    let why = view.why.unwrap();
    assert!(why.contains("has not answered for 5 s"), "{why}");
    let command = format!("`nmcli connection load {PROFILE}`");
    assert!(why.contains(&command), "{why}");
    managed.signal("-CONT");
    let undone = managed.host.undo(id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    assert_eq!(managed.text(), TEXT);
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1500");

    let id = managed.order().await;
    let mut manager = managed.programs.pop().unwrap();
    manager.kill().unwrap();
    manager.wait().unwrap();
    let view = managed.host.ended(id).await;
    assert_eq!(view.state, ChangeState::Applied, "{view:#?}");
    assert_eq!(managed.text(), written());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_sets_back_what_was_set_before_it_waits_for_a_network_manager_that_stands_still() {
    let Some(managed) = Managed::new("nmundo").await else {
        return;
    };
    let host = &managed.host;
    let view = managed.persist().await;
    assert_eq!(view.state, ChangeState::Applied, "{view:#?}");
    managed.signal("-STOP");
    host.undo(view.id).await.unwrap();
    let undone = host.ended(view.id).await;
    assert_eq!(undone.state, ChangeState::InDoubt, "{undone:#?}");
    let why = undone.why.unwrap();
    assert!(why.contains("has not answered for 5 s"), "{why}");
    assert_eq!(host.facts().await.nic("nm0").unwrap().mtu, 1500);
    assert_eq!(managed.text(), TEXT);
    // It is waited for once, when the file and the MTU are back.
    let records = host.account(view.id).records;
    let asked = records
        .iter()
        .position(|record| matches!(record, Record::UndoAsked { .. }));
    let back = [Record::Undone { step: 1 }, Record::Undone { step: 0 }];
    let after = &records[asked.unwrap() + 1..];
    assert_eq!(after[..2], back);
    let told = &after[2..];
    assert!(
        matches!(told, [Record::NotReread { .. }, Record::Ended { .. }]),
        "{told:?}"
    );
    managed.signal("-CONT");
    let undone = host.undo(view.id).await.unwrap();
    assert_eq!(undone.state, ChangeState::Undone, "{undone:#?}");
    assert_eq!(managed.knows("802-3-ethernet.mtu"), "1500");
}

impl Managed {
    fn signal(&self, signal: &str) {
        let manager = self.programs.last().unwrap().id().to_string();
        let told = Command::new("kill").args([signal, &manager]).status();
        assert!(told.unwrap().success());
    }
}
