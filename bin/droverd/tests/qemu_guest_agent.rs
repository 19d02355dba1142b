//! What a real guest agent (Debian's `qemu-ga`), in a real guest, tells an agent of the host: the largest packet that the guest has set.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use drover_tune::examine;
use drover_tune::facts::{Card, Fact, Host};
use support::{Place, has_qemu};

/// What `scripts/setup --for-tests` unpacks, and where kernels of the lab's guests are.
const CACHE: &str = "/var/cache/drover-lab";
const AGENT: &str = "/var/cache/drover-lab/guest-agent/usr/sbin/qemu-ga";

/// What is told to the guest, and what it sets in spite of that.
const OFFERED: u32 = 9000;
const SET: u32 = 1400;

/// For a guest to start under emulation beside other tests, some 5 s by itself, and to be asked.
const PATIENCE: Duration = Duration::from_secs(150);
const POLL: Duration = Duration::from_millis(500);

/// Modules for its card, in the order in which they are loaded.
const MODULES: [&str; 3] = [
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];

/// The guest's first program. A port of virtio's is known by its number until udev, of which there is none, gives it a name.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
for module in failover net_failover virtio_net; do /bin/busybox insmod /modules/$module.ko; done
/bin/busybox ip link set eth0 mtu SET up
for port in /sys/class/virtio-ports/*; do
    exec /sbin/qemu-ga --method=virtio-serial --path=/dev/${port##*/} --statedir=/tmp --pidfile=/tmp/pid
done
";

/// A program's answer, which it has to give.
fn said(program: &str, arguments: &[&str]) -> Vec<u8> {
    let done = Command::new(program).args(arguments).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
    done.stdout
}

/// The kernel of the lab's guests, and where its modules are.
fn kernel() -> Option<(PathBuf, PathBuf)> {
    let folders = fs::read_dir(CACHE).ok()?.filter_map(|entry| {
        let path = entry.ok()?.path();
        let release = path
            .file_name()?
            .to_str()?
            .strip_prefix("kernel-")?
            .to_owned();
        let image = path.join("boot").join(format!("vmlinuz-{release}"));
        let modules = path.join("lib/modules").join(&release).join("kernel");
        (image.is_file() && modules.is_dir()).then_some((image, modules))
    });
    folders.max()
}

/// What it takes; says so where something is missing.
fn parts() -> Option<(PathBuf, PathBuf)> {
    let tun = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let busybox = Path::new("/bin/busybox").exists();
    let missing = if tun.is_err() || !rustix::process::geteuid().is_root() {
        "/dev/net/tun cannot be opened, or by another user than root".to_owned()
    } else if !busybox {
        "there is no /bin/busybox: apt-get install busybox-static".to_owned()
    } else if !Path::new(AGENT).is_file() {
        format!("there is no {AGENT}: run scripts/setup --for-tests")
    } else {
        match kernel() {
            Some(kernel) => return Some(kernel),
            None => format!("there is no kernel in {CACHE}: run scripts/setup --for-tests"),
        }
    };
    eprintln!("skipped, because {missing}");
    None
}

/// Packs what the guest starts from: busybox, the agent, the libraries that this machine would start it with (5 MiB of them), and modules.
fn pack(place: &Place, modules: &Path) -> PathBuf {
    let root = place.path("root");
    let put = |path: &str, bytes: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for folder in ["dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    put("init", INIT.replace("SET", &SET.to_string()).as_bytes());
    put("bin/busybox", &fs::read("/bin/busybox").unwrap());
    put("sbin/qemu-ga", &fs::read(AGENT).unwrap());
    let libraries = String::from_utf8(said("ldd", &[AGENT])).unwrap();
    for library in libraries.split_ascii_whitespace() {
        if let Some(path) = library.strip_prefix('/') {
            put(path, &fs::read(library).unwrap());
        }
    }
    for module in MODULES {
        let file = modules.join(format!("{module}.ko.xz"));
        let (_, name) = module.rsplit_once('/').unwrap();
        let unpacked = said("/bin/busybox", &["unxz", "-c", file.to_str().unwrap()]);
        put(&format!("modules/{name}.ko"), &unpacked);
    }
    let archive = place.path("initramfs");
    let line = format!(
        "cd {} && chmod -R 755 . && find . | busybox cpio -o -H newc > {}",
        root.display(),
        archive.display()
    );
    said("sh", &["-c", &line]);
    archive
}

fn define(place: &Place, tap: &str, kernel: &Path, initramfs: &Path) {
    let text = format!(
        r#"name = "web1"
memory = "192MiB"
vcpus = 1
machine = "q35,accel=tcg"
args = [
    "-nodefaults", "-no-reboot", "-cpu", "max",
    "-kernel", "{}", "-initrd", "{}", "-append", "quiet panic=-1 console=ttyS0",
    "-serial", "file:{}",
    "-netdev", "tap,id=net0,ifname={tap},script=no,downscript=no",
    "-device", "virtio-net-pci,netdev=net0,mac=52:54:00:12:34:56,host_mtu={OFFERED}",
    "-device", "virtio-serial-pci",
    "-chardev", "socket,id=qga,path={},server=on,wait=off",
    "-device", "virtserialport,chardev=qga,name=org.qemu.guest_agent.0",
]
"#,
        kernel.display(),
        initramfs.display(),
        place.path("console").display(),
        place.path("qga").display(),
    );
    fs::write(place.path("vms/web1.toml"), text).unwrap();
}

/// The guest's one card, where its QEMU tells of it.
fn card(host: &Host) -> Option<&Card> {
    let guests = host.guests.known()?;
    guests.first()?.seen.known()?.cards.known()?.first()
}

#[tokio::test]
async fn a_real_guest_agent_tells_what_the_guest_has_set_and_that_counts_before_what_it_is_told() {
    if !has_qemu() {
        return;
    }
    let Some((kernel, modules)) = parts() else {
        return;
    };
    let place = Place::new();
    let tap = format!("drg{}", std::process::id() % 100_000);
    define(&place, &tap, &kernel, &pack(&place, &modules));
    let agent = place.start().await;
    agent.start_vm("web1").await;
    let size = OFFERED.to_string();
    said("ip", &["link", "set", "dev", &tap, "mtu", &size, "up"]);

    let deadline = Instant::now() + PATIENCE;
    let told = loop {
        let told = agent.client.facts().await.unwrap().facts;
        match card(&told).map(|card| &card.guest_mtu) {
            Some(Fact::Known(_)) => break told,
            other => assert!(
                Instant::now() < deadline,
                "{other:?}; its console: {}",
                fs::read_to_string(place.path("console")).unwrap_or_default()
            ),
        }
        tokio::time::sleep(POLL).await;
    };
    let told_card = card(&told).unwrap();
    assert_eq!(told_card.offered_mtu, Some(OFFERED));
    assert_eq!(told_card.guest_mtu, Fact::Known(SET));
    let report = examine(&[told], &[]);
    let mut findings = report.findings.iter();
    let found = findings.find(|one| one.rule == "guest-mtu").unwrap();
    let read = format!("{SET} bytes, and what carries it takes {OFFERED}");
    assert_eq!(found.found.read, read);
}
