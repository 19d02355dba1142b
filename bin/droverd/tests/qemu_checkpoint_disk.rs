//! A disk for checkpoints on which no room is left: guests move on, and whole pages are kept or none.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use drover_api::MigrationView;
use drover_lab::command::run;
use hosts::reduced::{checkpoints_when, moved};
use hosts::{A, B, FAST, Hosts, set_word};

/// What a disk here has room for.
const ROOM: u64 = 4 << 20;

const FULL: &str = "No space left on device";

/// A disk of a host.
struct Disk(PathBuf);

impl Disk {
    async fn of(hosts: &Hosts, host: usize) -> Self {
        let path = hosts.host(host).socket("disk");
        fs::create_dir_all(&path).unwrap();
        let (size, at) = (format!("size={ROOM}"), path.to_str().unwrap());
        let arguments = ["-t", "tmpfs", "-o", &size, "drover-test", at];
        run("mount", &arguments).await.unwrap();
        Self(path)
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes all room that there is.
    fn fill(&self) {
        let mut file = File::create(self.ballast()).unwrap();
        let error = loop {
            if let Err(error) = file.write_all(&[1; 4096]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
    }

    /// What is there beside its mark, and the lock of that.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| !name.starts_with(".drover-checkpoints"))
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Agents that still run hold files of it.
        let unmounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
        assert!(std::thread::panicking() || unmounted.unwrap().success());
    }
}

fn has_note(view: &MigrationView, words: &str) -> bool {
    let told = |note: &String| note.contains(words) && note.contains(FULL);
    view.notes.iter().any(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_costs_no_guest_and_what_is_kept_there_is_whole() {
    let Some(mut hosts) = Hosts::new("fulldisk", FAST).await else {
        return;
    };
    let disks = [Disk::of(&hosts, A).await, Disk::of(&hosts, B).await];
    for host in [A, B] {
        hosts.configure(host, |config| {
            set_word(config, "checkpoints", "size", "1 GiB");
            let directory = disks[host].0.to_str().unwrap();
            set_word(config, "checkpoints", "directory", directory);
            set_word(config, "migration", "shared_pages_memory", "0");
        });
        hosts.start_agent(host).await;
        disks[host].fill();
    }
    hosts.boot().await;

    // There is not even room for a beginning.
    let [left, _] = moved(&mut hosts, A, "zstd:1").await;
    assert!(
        has_note(&left, "no checkpoint of it is kept on "),
        "{left:#?}"
    );
    assert!(has_note(&left, "will go back as whole pages"), "{left:#?}");
    for (host, disk) in [A, B].into_iter().zip(&disks) {
        checkpoints_when(&hosts, host, |kept| kept.taken.0 == 0).await;
        assert_eq!(disk.names(), ["ballast"]);
        fs::remove_file(disk.ballast()).unwrap();
    }

    // There is no more room in the middle of it, at both hosts.
    let [left, arrived] = moved(&mut hosts, B, "zstd:1").await;
    let kept_of = |view: &MigrationView| view.shared_pages.clone().unwrap();
    let (out, there) = (kept_of(&left), kept_of(&arrived));
    assert!(out.added > 100 && out.left_out > 100, "{left:#?}");
    assert!(
        there.recorded > 100 && there.unrecorded > 100,
        "{arrived:#?}"
    );
    for (stored, file) in [(&out, "file of stored pages"), (&there, "guest's baseline")] {
        let trouble = stored.trouble.clone().unwrap();
        assert!(
            trouble.contains(file) && trouble.contains(FULL),
            "{trouble}"
        );
    }
    for host in [A, B] {
        let kept = checkpoints_when(&hosts, host, |kept| kept.checkpoints.len() == 1).await;
        assert!(kept.taken.0 <= ROOM, "{kept:?}");
        // With what waited when the guest had moved.
        let (of, shown) = [(there.unrecorded, &there), (out.left_out, &out)][host];
        let left_out = of..=of + shown.waiting;
        let found = kept.checkpoints[0].left_out;
        assert!(left_out.contains(&found), "{found} of {left_out:?}");
    }

    // What is kept are pages of the guest, which are found when it comes back.
    let [_, returned] = moved(&mut hosts, A, "zstd:1").await;
    let found = kept_of(&returned).found_in_checkpoint;
    assert!(found > 100, "{returned:#?}");
    // It was used once.
    checkpoints_when(&hosts, B, |kept| kept.checkpoints.len() < 2).await;
    drop(disks);
}
