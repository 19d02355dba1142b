//! What `make dist` makes, of the programs that were built for tests: in a clean Debian, before lintian and systemd.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod debian;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use debian::{Debian, until};
use tempfile::TempDir;

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The time of all files, so that tests need no git.
const EPOCH: &str = "1700000000";

/// What the tarball of a release has in it, as `docs/INSTALL.md` says.
const RELEASE: &str = "drover-0.1.0-linux-x86_64";

/// All of `packaging`.
const UNITS: [&str; 3] = [
    "droverd.service",
    "drover-doctor.service",
    "drover-doctor.timer",
];

fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_xtask")).parent().unwrap()
}

/// Whether a package can be made here; says so when not.
fn can_pack() -> bool {
    let probe = "probe/x86_64-unknown-linux-gnu/release/drover-probe";
    let problem = if !has("dpkg-shlibdeps") {
        "dpkg-dev is not installed"
    } else if !target().join(probe).exists() {
        "drover-probe is not built: make probe"
    } else {
        return true;
    };
    eprintln!("skipped, because {problem}");
    false
}

fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(REPOSITORY).join("target"), PathBuf::from)
}

fn has(program: &str) -> bool {
    let asked = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// The package and the tarball, in this folder.
fn pack(output: &Path) -> (PathBuf, PathBuf) {
    let notices = output.join("notices");
    let written = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("notices")
        .arg(&notices)
        .output()
        .unwrap();
    assert!(written.status.success(), "{written:?}");
    let packed = Command::new(Path::new(REPOSITORY).join("scripts/dist"))
        .arg("--quick")
        .arg("--built")
        .arg(built())
        .arg("--notices")
        .arg(&notices)
        .arg("--output")
        .arg(output)
        .env("SOURCE_DATE_EPOCH", EPOCH)
        .env("CARGO_TARGET_DIR", target())
        // Of the make that runs the tests.
        .env_remove("MAKEFLAGS")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(packed.status.success(), "{packed:?}");
    fs::remove_file(notices).unwrap();
    let with = |end: &str| {
        let mut files = fs::read_dir(output)
            .unwrap()
            .map(|file| file.unwrap().path());
        files
            .find(|file| file.to_string_lossy().ends_with(end))
            .unwrap()
    };
    (with(".deb"), with(".tar.xz"))
}

/// What is in one and not in the other.
fn differences(before: &[String], after: &[String]) -> Vec<String> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) =
        (before.iter().collect(), after.iter().collect());
    let differences = before.symmetric_difference(&after);
    differences.map(|line| (*line).clone()).collect()
}

#[test]
fn the_package_goes_into_a_clean_debian_serves_it_and_leaves_no_trace() {
    if !Debian::is_there() || !can_pack() {
        return;
    }
    let debian = Debian::new();
    let before = debian.files();
    let (package, _) = pack(&debian.packages());
    let install = format!(
        "dpkg --install /packages/{}",
        package.file_name().unwrap().display()
    );

    is_installed(&debian, &install);
    serves(&debian);
    is_upgraded(&debian, &install);
    is_removed_only_where_that_harms_no_guest(&debian);
    is_installed_again(&debian, &install);
    let left = debian.files();
    let kept = |path: &str| left.iter().any(|line| line.starts_with(path));
    assert!(
        kept("/var/lib/drover/trust ") && kept("/etc/drover/droverd.toml "),
        "{left:#?}"
    );
    is_purged_only_where_that_harms_no_guest(&debian);

    assert_eq!(differences(&before, &debian.files()), Vec::<String>::new());
    let known = debian.shell("grep -rl drover /var/lib/dpkg || true");
    assert_eq!(known.replace("/var/lib/dpkg/status-old\n", ""), "");
}

fn is_installed(debian: &Debian, install: &str) {
    let said = debian.shell(install);
    assert!(said.contains("systemctl enable --now droverd"), "{said}");
    assert_eq!(debian.asked_of_systemd(), "--system daemon-reload\n");
    let checked = debian.run("droverd --check-config");
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{checked:?}"
    );
    for (path, mode) in [
        ("/etc/drover/droverd.toml", "600"),
        ("/etc/drover/vms", "700"),
        ("/usr/lib/drover/drover-probe", "755"),
        ("/usr/share/man/man1/drover-migrate.1.gz", "644"),
        ("/usr/share/man/man5/droverd.toml.5.gz", "644"),
        ("/usr/share/man/man8/droverd.8.gz", "644"),
        ("/usr/share/bash-completion/completions/drover", "644"),
        ("/usr/share/zsh/vendor-completions/_drover", "644"),
        ("/usr/share/fish/vendor_completions.d/drover.fish", "644"),
        ("/usr/share/doc/drover/THIRD-PARTY.gz", "644"),
    ] {
        let found = debian.shell(&format!("stat --format='%a %U' {path}"));
        assert_eq!(found.trim(), format!("{mode} root"), "{path}");
    }
    let depends = debian.shell("dpkg-query --show --showformat='${Depends}' drover");
    assert!(depends.contains("libc6 (>= "), "{depends}");
}

/// By the commands of the units: there is no systemd in there.
fn serves(debian: &Debian) {
    let command = |unit: &str| {
        let file = format!("/usr/lib/systemd/system/{unit}.service");
        let command = debian.shell(&format!("sed -n 's/^ExecStart=//p' {file}"));
        command.trim().to_owned()
    };
    let agent = debian.shell(&format!(
        "{} >/packages/log 2>&1 & echo $!",
        command("droverd")
    ));
    until("an agent that answers", || {
        debian.run("drover status").status.success()
    });
    let status = debian.shell("drover status");
    assert!(status.starts_with("host clean, droverd "), "{status}");

    debian.shell("drover cluster init");
    let doctor = debian.run(&command("drover-doctor"));
    assert!(matches!(doctor.status.code(), Some(0 | 2)), "{doctor:?}");
    let kept = debian.shell("ls /var/lib/drover/doctor");
    assert_eq!(kept.lines().count(), 1, "{kept}");

    debian.shell(&format!("kill {agent}"));
    until("the agent's end", || {
        !debian
            .run("test -e /run/drover/droverd.sock")
            .status
            .success()
    });
}

/// The old agent is followed by the new one, unless that could not begin.
fn is_upgraded(debian: &Debian, install: &str) {
    let restart = "try-restart droverd.service";
    debian.asked_of_systemd();
    debian.shell("touch /packages/active");
    let config = "/etc/drover/droverd.toml";
    debian.shell(&format!(
        "sed -i 's/^#memory_headroom = .*/memory_headroom = \"1GiB\"/' {config}; {install}"
    ));
    debian.shell(&format!("grep -q '^memory_headroom = \"1GiB\"' {config}"));
    let asked = debian.asked_of_systemd();
    assert!(
        asked.contains(restart) && !asked.contains("stop"),
        "{asked}"
    );

    debian.shell(&format!("sed -i '1i no = 1' {config}"));
    let output = debian.run(install);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("was not restarted") && said.contains("key `no`"),
        "{said}"
    );
    let asked = debian.asked_of_systemd();
    assert!(!asked.contains(restart), "{asked}");
    debian.shell("rm /packages/active");
}

/// The arguments of a guest's QEMU by which it is known; a test of droverd holds them against a real one.
const GUEST: &str =
    "-name web -chardev socket,id=drover-qmp,server=on,wait=off,path=/run/drover/vms/web/qmp";

fn is_removed_only_where_that_harms_no_guest(debian: &Debian) {
    for (name, words) in [
        ("droverd-relay", "guests are being moved"),
        ("droverd-change", "a change to this host is under way"),
    ] {
        let process = debian.stand_in(Some(name), "");
        let said = debian.refused("dpkg --remove drover");
        assert!(
            said.contains(&format!("{words} (processes {process})")),
            "{said}"
        );
        debian.shell(&format!("kill {process}"));
    }
    let guest = debian.stand_in(None, GUEST);
    let said = debian.refused("dpkg --remove drover");
    assert!(said.contains("guests run here: web"), "{said}");
    let asked = debian.asked_of_systemd();
    assert!(!asked.contains("stop"), "{asked}");
    debian.shell("drover --version && droverd --version");

    debian.shell("mkdir -p /var/lib/drover/changes/1");
    let output = debian.run("DROVER_LEAVE_GUESTS=yes dpkg --remove drover");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("`drover doctor apply` has set stays set"),
        "{said}"
    );
    let asked = debian.asked_of_systemd();
    assert!(
        asked.contains("stop drover-doctor.timer drover-doctor.service droverd.service"),
        "{asked}"
    );
    debian.shell(&format!("kill -0 {guest}; ! command -v droverd"));
    debian.shell(&format!("kill {guest}"));
}

/// Guests that were left are told of where there is no agent.
fn is_installed_again(debian: &Debian, install: &str) {
    let guest = debian.stand_in(None, GUEST);
    let output = debian.run(install);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("guests run here without an agent: web"),
        "{said}"
    );
    debian.shell(&format!(
        "DROVER_LEAVE_GUESTS=yes dpkg --remove drover && kill {guest}"
    ));
}

fn is_purged_only_where_that_harms_no_guest(debian: &Debian) {
    // As it was changed, though dpkg has deleted it by then.
    let is_all_there = "grep -q ^no /etc/drover/droverd.toml && test -d /var/lib/drover/trust";
    let guest = debian.stand_in(None, GUEST);
    let said = debian.refused("dpkg --purge drover");
    assert!(said.contains("not purged: guests run here: web"), "{said}");
    debian.shell(&format!("kill {guest}; {is_all_there}"));

    let state = "/var/lib/drover/suspended/web.json";
    debian.shell(&format!(
        "mkdir -p $(dirname {state}) && echo {{}} >{state}"
    ));
    let said = debian.refused("dpkg --purge drover");
    assert!(
        said.contains("a guest is suspended here") && said.contains(state),
        "{said}"
    );
    debian.shell(is_all_there);
    debian.shell(&format!("rm {state}; dpkg --purge drover"));
}

/// The commands of a section of `docs/INSTALL.md`, each block of them as one script for the folder with this tarball.
fn commands(section: &str, tarball: &Path) -> Vec<String> {
    let name = tarball.file_name().unwrap().to_str().unwrap();
    let name = name.strip_suffix(".tar.xz").unwrap();
    let document = fs::read_to_string(Path::new(REPOSITORY).join("docs/INSTALL.md")).unwrap();
    let (_, section) = document.split_once(&format!("## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    let script = |block: &str| {
        let lines: Vec<_> = block.lines().map(|line| &line[2..]).collect();
        let lines = lines.join("\n").replace(RELEASE, name);
        format!("set -e; cd /packages\n{lines}")
    };
    blocks.map(script).collect()
}

#[test]
fn the_tarball_goes_into_a_clean_debian_by_the_commands_for_it_and_goes_by_them() {
    if !Debian::is_there() || !can_pack() {
        return;
    }
    let debian = Debian::new();
    let before = debian.files();
    let (_, tarball) = pack(&debian.packages());
    let blocks = commands("Any other Linux", &tarball);
    let [install, remove] = <[String; 2]>::try_from(blocks).unwrap();
    // The clean Debian has no xz.
    let unpacked = Command::new("tar")
        .args(["--extract", "--file"])
        .arg(&tarball)
        .current_dir(debian.packages())
        .status();
    assert!(unpacked.unwrap().success());
    let install = format!("tar() {{ [ \"$1\" = -xf ] || command tar \"$@\"; }}\n{install}");

    let said = debian.shell(&install);
    assert!(said.contains("libc.so.6 libgcc_s.so.1"), "{said}");
    assert_eq!(debian.asked_of_systemd(), "daemon-reload\n");
    let checked = debian.run("droverd --check-config");
    assert!(
        checked.status.success() && checked.stderr.is_empty(),
        "{checked:?}"
    );
    serves(&debian);
    // An upgrade is the same, and leaves the configuration.
    let config = "/etc/drover/droverd.toml";
    debian.shell(&format!("echo '# ours' >>{config}"));
    debian.shell(&install);
    debian.shell(&format!("grep -q '^# ours' {config}"));

    debian.asked_of_systemd();
    debian.shell(&remove);
    let asked = debian.asked_of_systemd();
    assert_eq!(asked, "disable --now droverd drover-doctor.timer\n");
    assert_eq!(differences(&before, &debian.files()), Vec::<String>::new());
}

#[test]
fn packing_the_same_programs_again_gives_the_same_bytes() {
    if !can_pack() {
        return;
    }
    let (one, two) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (first, second) = (pack(one.path()), pack(two.path()));
    assert_eq!(first.0.file_name(), second.0.file_name());
    assert!(
        fs::read(first.0).unwrap() == fs::read(second.0).unwrap(),
        "the package differs"
    );
    assert!(
        fs::read(&first.1).unwrap() == fs::read(second.1).unwrap(),
        "the tarball differs"
    );
    let listed = Command::new("tar")
        .arg("--list")
        .arg("--file")
        .arg(&first.1)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    for file in [
        "/INSTALL.md",
        "/LICENSE",
        "/BUILD",
        "/usr/bin/droverd",
        "/etc/drover/droverd.toml",
    ] {
        assert!(
            listed.lines().any(|line| line.ends_with(file)),
            "{file}: {listed}"
        );
    }
}

#[test]
fn lintian_has_nothing_to_say_of_the_package() {
    if !can_pack() {
        return;
    }
    if !has("lintian") {
        eprintln!("skipped, because lintian is not installed: apt-get install lintian");
        return;
    }
    let folder = TempDir::new().unwrap();
    let (package, _) = pack(folder.path());
    let said = Command::new("lintian")
        .args(["--allow-root", "--fail-on", "error,warning"])
        .arg(package)
        .output()
        .unwrap();
    assert!(
        said.status.success() && said.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&said.stdout)
    );
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    if !has("systemd-analyze") {
        eprintln!("skipped, because systemd is not installed");
        return;
    }
    let root = TempDir::new().unwrap();
    let (units, programs) = ("usr/lib/systemd/system", root.path().join("usr/bin"));
    let own = root.path().join(units);
    fs::create_dir_all(&own).unwrap();
    fs::create_dir_all(&programs).unwrap();
    for unit in UNITS {
        fs::copy(
            Path::new(REPOSITORY).join("packaging").join(unit),
            own.join(unit),
        )
        .unwrap();
    }
    // The targets that they name.
    for there in fs::read_dir(Path::new("/").join(units)).unwrap() {
        let there = there.unwrap();
        if there.path().extension().is_some_and(|end| end == "target") {
            fs::copy(there.path(), own.join(there.file_name())).unwrap();
        }
    }
    for program in ["drover", "droverd"] {
        let program = programs.join(program);
        fs::write(&program, "").unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let said = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--root"])
        .arg(root.path())
        .args(UNITS)
        .output()
        .unwrap();
    assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
}
