//! Domains that AppArmor confines, as Debian and Ubuntu have it: on an emulated host, whose kernel enforces what Debian's own profiles
//! say. Each of two hosts there has a libvirt in a policy namespace of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../crates/libvirt/tests/common/mod.rs"]
mod common;
#[path = "qemu_libvirt_moves/pair.rs"]
mod pair;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::guest;
use drover_api::MigrateRequest;
use drover_lab::emulated::{EmulatedHost, Program, cache};
use drover_libvirt::DomainState;
use drover_types::MigrationId;
use pair::{Pair, Side, to};
use tempfile::TempDir;

/// For the test on the emulated host, once it is there. Two of them took 160 s where eight others wanted two cores, and 300 s where sixteen did.
const WITHIN: Duration = Duration::from_secs(420);

/// For each move.
const MOVES: Duration = Duration::from_secs(150);

/// Of its kernel: each host is a network namespace with files of its own.
const MODULES: [&str; 2] = ["overlay", "veth"];

/// The folder of its libvirt, on the emulated host and nowhere else.
const LIBVIRT: &str = "DROVER_CONFINED_LIBVIRT";

on_each_libvirt! {
    domains_that_apparmor_confines_move
}

/// What loads profiles, and what all of them include: Debian's package of that name. Profiles for libvirt are in libvirt's own.
fn apparmor() -> PathBuf {
    cache().join("apparmor")
}

/// The emulated host, or none and why where it cannot be had.
async fn emulated() -> Option<EmulatedHost> {
    let parser = apparmor().join("usr/sbin/apparmor_parser");
    let made = EmulatedHost::new(Path::new(guest::QEMU)).and_then(|mut host| {
        host.modules = MODULES.map(str::to_owned).into();
        anyhow::ensure!(
            parser.exists(),
            "there is no {}: scripts/setup --for-tests unpacks it",
            parser.display()
        );
        Ok(host)
    });
    let checked = match made {
        Ok(host) => host.check().await.map(|()| host),
        Err(missing) => Err(missing),
    };
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle:#}");
    }
    checked.ok()
}

async fn domains_that_apparmor_confines_move(libvirt: PathBuf) {
    let Some(host) = emulated().await else {
        return;
    };
    let own = std::env::current_exe().unwrap().display().to_string();
    let words = [own.as_str(), "--ignored", "--nocapture", "--test-threads=1"];
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let built = Path::new(env!("CARGO_BIN_EXE_droverd")).parent().unwrap();
    let program = Program {
        words: words.map(str::to_owned).into(),
        environment: vec![
            ("PATH".to_owned(), path.to_owned()),
            (LIBVIRT.to_owned(), libvirt.display().to_string()),
            ("DROVER_LAB_CACHE".to_owned(), cache().display().to_string()),
        ],
        folders: vec![built.to_owned(), cache()],
    };
    let folder = TempDir::new().unwrap();
    let ended = host.run(folder.path(), &program, WITHIN).await.unwrap();
    for why in ended.begun_anew {
        println!("started anew: {why}");
    }
    let output = ended.output;
    assert_eq!(ended.status, 0, "failed on the emulated host:\n{output}");
    assert!(output.contains("1 passed; 0 failed"), "{output}");
}

fn sh(line: &str) {
    let done = Command::new("sh").args(["-ec", line]).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
}

/// The libvirt, once the emulated host's kernel and files are as where AppArmor is installed; none elsewhere.
fn confining() -> Option<PathBuf> {
    let Some(libvirt) = std::env::var_os(LIBVIRT).map(PathBuf::from) else {
        println!("runs on an emulated host only");
        return None;
    };
    let (apparmor, known) = (apparmor(), env!("CARGO_TARGET_TMPDIR"));
    let (apparmor, profiles) = (apparmor.display(), libvirt.display());
    sh(&format!(
        "! mountpoint -q /sys/kernel/security || exit 0
        mount -t securityfs securityfs /sys/kernel/security
        mount -t overlay overlay -o lowerdir={profiles}/etc:{apparmor}/etc:/etc /etc
        mount -t overlay overlay -o lowerdir={apparmor}/usr:/usr /usr
        mount -t tmpfs tmpfs {known}"
    ));
    Some(libvirt)
}

/// Gives a host's libvirt a policy namespace, and has it confine.
fn confine(side: &Side, namespace: &str) {
    side.host.shell(&format!(
        "set -e
        mount -t securityfs securityfs /sys/kernel/security
        mkdir /run/profiles
        cp -a /etc/apparmor.d/libvirt/. /run/profiles
        mount --bind /run/profiles /etc/apparmor.d/libvirt
        for profile in usr.sbin.libvirtd usr.lib.libvirt.virt-aa-helper; do
            apparmor_parser --namespace {namespace} --replace --skip-cache /etc/apparmor.d/$profile
        done
        sed -i 's/^security_driver = .*/security_driver = \"apparmor\"/' /etc/libvirt/qemu.conf
        kill $(cat /run/libvirtd.pid)
        while pgrep -x libvirtd; do sleep 0.1; done
        aa-exec --namespace {namespace} -- sh -c 'libvirtd --daemon'"
    ));
}

async fn confined(libvirt: &Path, xml: &str, prepare: impl FnOnce(&Side, &Side)) -> Pair {
    let prepare = |a: &mut Side, b: &mut Side| {
        confine(a, "a");
        confine(b, "b");
        prepare(a, b);
    };
    let folder = TempDir::new().unwrap();
    let (pair, ()) = Pair::prepared(libvirt, folder, xml, prepare).await;
    assert!(is_confined(&pair.a), "{}", pair.logs());
    pair
}

/// All of it is emulated twice.
async fn has_ended(pair: &Pair, id: MigrationId) {
    let begun = Instant::now();
    while !pair.a.migration(id).await.phase.has_ended() {
        assert!(begun.elapsed() < MOVES, "{}", pair.logs());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether a profile of its own is enforced on a host's only QEMU.
fn is_confined(side: &Side) -> bool {
    let [qemu] = <[String; 1]>::try_from(side.host.qemus()).unwrap();
    let label = side.host.shell(&format!("cat /proc/{qemu}/attr/current"));
    label.contains("libvirt-") && label.trim().ends_with("(enforce)")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs on an emulated host"]
async fn a_domain_moves_with_its_disk() {
    let Some(libvirt) = confining() else {
        return;
    };
    let disk = "<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='/run/images/web.img'/>\
        <target dev='vda' bus='virtio'/></disk><memballoon";
    let xml = guest::idle("web").replace("<memballoon", disk);
    let pair = confined(&libvirt, &xml, |a, b| {
        for side in [a, b] {
            side.host.shell("mkdir /run/images");
        }
        a.host.shell("head -c 8M /dev/urandom >/run/images/web.img");
    })
    .await;
    let request = MigrateRequest {
        with_disks: true,
        ..to("b")
    };
    let client = &pair.a.agent().client;
    let view = client.migrate(&"web".parse().unwrap(), &request).await;
    let view = view.unwrap_or_else(|error| panic!("{error:?}\n{}", pair.logs()));
    has_ended(&pair, view.id).await;
    pair.has_moved(view.id, DomainState::Running).await;
    assert!(is_confined(&pair.b));
    let [here, there] = [&pair.a, &pair.b].map(|side| side.host.shell("cksum /run/images/web.img"));
    assert_eq!(here, there);
}
