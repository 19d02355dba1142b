//! `drover lab compare --libvirt`: a domain of each libvirt, with a disk of its own or without, moved by `virsh migrate` and by agents.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod labs;
#[path = "../../../crates/lab/tests/support/mod.rs"]
#[allow(dead_code, reason = "not all of it is used here")]
mod support;

use drover_lab::libvirt::Libvirt;
use labs::{Stays, drover, said};
use serde_json::Value;
use support::{build_probe, lacks_something};

/// A small guest that moves at once.
const SMALL: [&str; 8] = [
    "--memory",
    "192MiB",
    "--content",
    "48MiB",
    "--dirty",
    "4MiB@8MiB",
    "--rate",
    "400mbit",
];

/// What a comparison of these methods found, each once.
fn compared(version: &str, methods: &str, disk: &[&str]) -> Value {
    let word = if disk.is_empty() { "virsh" } else { "disk" };
    let lab = Stays::named(&format!("{word}{}", version.replace('.', "")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("compared.json");
    let words = [
        &["lab", "compare", "--name", &lab.0][..],
        &["--json", file.to_str().unwrap()],
        &["--libvirt", version, "--methods", methods],
        &["--channels", "2", "--repeats", "1"],
        &SMALL,
        disk,
    ];
    let done = drover(&words.concat());
    assert!(done.status.success(), "{}", said(&done));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

async fn is_missing(version: &str) -> bool {
    if lacks_something().await {
        return true;
    }
    let libvirt: Libvirt = version.parse().unwrap();
    if let Err(missing) = libvirt.check() {
        println!("skipped, because {missing}");
        return true;
    }
    build_probe();
    false
}

/// Every method moved the domain to the other host, over so many NICs, and the guest found itself whole.
fn moved_over(compared: &Value, nics: &[(&str, usize)]) {
    let runs = compared["runs"].as_array().unwrap();
    assert_eq!(runs.len(), nics.len(), "{compared}");
    for (run, (method, nics)) in runs.iter().zip(nics) {
        assert_eq!(run["method"], *method);
        assert_eq!(run["verified"], true, "{run}");
        let bytes = run["wire_bytes"].as_object().unwrap().values();
        let used = bytes.filter(|bytes| bytes.as_u64().unwrap() > 1 << 20);
        assert_eq!(used.count(), *nics, "{run}");
        assert!(run["payload_bytes"].as_u64().unwrap() > 1 << 20, "{run}");
    }
}

/// What QEMU sent of the domain took less on the lines.
fn is_reduced(compared: &Value, method: &str) {
    let reduced = &compared["summary"][method]["reduced"];
    let [raw, wire] =
        ["raw_bytes", "wire_bytes"].map(|bytes| reduced[bytes]["median"].as_f64().unwrap());
    assert!(wire > 0.0 && wire < raw * 0.8, "{reduced}");
}

#[tokio::test]
async fn one_domain_of_libvirt_11_3_moves_by_each_method_in_turn() {
    if is_missing("11.3").await {
        return;
    }
    let methods = "virsh,virsh-parallel,virsh-parallel-zstd,drover,drover-zstd";
    let all = compared("11.3", methods, &[]);
    moved_over(
        &all,
        &[
            ("virsh", 1),
            ("virsh-parallel", 1),
            ("virsh-parallel-zstd", 1),
            ("drover", 2),
            ("drover-zstd", 2),
        ],
    );
    is_reduced(&all, "drover-zstd");
    let told = all["machine"]["libvirt"].as_str().unwrap();
    assert!(told.starts_with("11.3"), "{told}");
}

#[tokio::test]
async fn libvirt_9_0_moves_a_domain_without_the_compression_that_it_does_not_know() {
    if is_missing("9.0").await {
        return;
    }
    let methods = "virsh-parallel-zstd,drover,drover-zstd,virsh-parallel";
    let all = compared("9.0", methods, &[]);
    let moved = [("drover", 2), ("drover-zstd", 2), ("virsh-parallel", 1)];
    moved_over(&all, &moved);
    is_reduced(&all, "drover-zstd");
    let skipped = &all["skipped"][0];
    assert_eq!(skipped["method"], "virsh-parallel-zstd", "{skipped}");
}

#[tokio::test]
async fn a_domain_moves_with_its_own_disk_while_it_writes_to_it_and_both_copies_are_the_same() {
    if is_missing("11.3").await {
        return;
    }
    let methods = "virsh-storage,virsh-storage-parallel,drover-disks";
    let disk = [
        "--disk",
        "64MiB",
        "--disk-content",
        "48MiB",
        "--disk-dirty",
        "4MiB@2MiB",
    ];
    let all = compared("11.3", methods, &disk);
    moved_over(
        &all,
        &[
            ("virsh-storage", 1),
            ("virsh-storage-parallel", 1),
            ("drover-disks", 2),
        ],
    );
    for run in all["runs"].as_array().unwrap() {
        // All of the disk but what is rewritten, and of its 48 MiB of noise none is left out.
        assert_eq!(run["disk"]["compared"], 60 << 20, "{run}");
        let bytes = run["wire_bytes"].as_object().unwrap().values();
        let crossed: u64 = bytes.map(|bytes| bytes.as_u64().unwrap()).sum();
        assert!(crossed > 48 << 20, "{run}");
        assert!(
            run["disk"]["rewrites_during"].as_f64().unwrap() > 10.0,
            "{run}"
        );
    }
}

#[tokio::test]
async fn a_method_of_other_guests_is_refused_before_anything_is_made() {
    if lacks_something().await {
        return;
    }
    for (words, reason) in [
        (
            &["--libvirt", "11.3", "--methods", "tcp"][..],
            "tcp moves no domain",
        ),
        (
            &["--libvirt", "11.3", "--methods", "drover,drover-plain"],
            "drover-plain moves no domain",
        ),
        (&["--methods", "virsh"], "such as --libvirt 11.3"),
        (
            &["--libvirt", "11.3", "--methods", "virsh-storage"],
            "virsh-storage moves no domain",
        ),
        (
            &[
                "--libvirt",
                "11.3",
                "--disk",
                "64MiB",
                "--methods",
                "drover",
            ],
            "drover moves no disk",
        ),
        (&["--disk", "64MiB"], "--libvirt <LIBVIRT>"),
        (&["--libvirt", "/no/libvirt"], "/no/libvirt/usr/sbin"),
    ] {
        let refused = drover(&[&["lab", "compare", "--name", "virshno"], words].concat());
        let refused = said(&refused);
        assert!(refused.contains(reason), "{refused}");
    }
}
