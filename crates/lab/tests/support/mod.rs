//! What tests need that boot guests of a lab.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use drover_lab::{find_probe, require};

/// The QEMU that runs guests.
pub const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// Whether this machine lacks something, so that the test cannot run.
pub async fn lacks_something() -> bool {
    let qemu = Path::new(QEMU);
    let checked = match require::check(qemu) {
        Ok(()) => require::check_guest(qemu).await,
        missing => missing,
    };
    if let Err(obstacle) = &checked {
        println!("skipped, because {obstacle}");
    }
    checked.is_err()
}

/// The guest's program, built as `make build` builds it when it is not there.
pub fn build_probe() -> PathBuf {
    if let Ok(probe) = find_probe() {
        return probe;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap().join("probe");
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--release",
            "--locked",
            "--package",
            "drover-probe",
        ])
        .args(["--target", "x86_64-unknown-linux-gnu", "--target-dir"])
        .arg(target)
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C strip=symbols",
        )
        .current_dir(root)
        .status()
        .unwrap();
    assert!(status.success(), "the guest's program cannot be built");
    find_probe().unwrap()
}
