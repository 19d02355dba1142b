//! Other processes, which are tests of this program that are otherwise ignored, and small disks.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; each program of tests uses some of them"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Where a child finds the file.
const PATH: &str = "DROVER_STORE_TEST_FILE";

/// Marks what a child says among what its test runner prints.
const MARK: &str = "@@";

/// A process that does one of the ignored tests; killed when it is dropped.
pub struct Child {
    process: std::process::Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Child {
    pub fn start(test: &str, path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            says: BufReader::new(process.stdout.take().unwrap()),
            hears: process.stdin.take().unwrap(),
            process,
        }
    }

    /// Its next word; it is expected to have one.
    pub fn says(&mut self) -> String {
        self.next_word().expect("the child ended without a word")
    }

    fn next_word(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.says.read_line(&mut line).unwrap() > 0 {
            if let Some((_, word)) = line.trim_end().split_once(MARK) {
                return Some(word.to_owned());
            }
            line.clear();
        }
        None
    }

    pub fn tell(&mut self, word: &str) {
        writeln!(self.hears, "{word}").unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, and gives the last whole word that it said and that was not read yet.
    pub fn kill(mut self) -> Option<String> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        std::iter::from_fn(|| self.next_word()).last()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In a child: the file that it was given.
pub fn given_path() -> PathBuf {
    std::env::var_os(PATH)
        .expect("this test is started by another one")
        .into()
}

/// In a child: says a word.
pub fn word(word: &str) {
    println!("{MARK}{word}");
}

/// In a child: the next word it is told; empty at the end.
pub fn told() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A file system in memory over a folder of the test.
pub struct Mount(PathBuf);

impl Mount {
    /// None, said so, where this machine lets nobody mount.
    pub fn tmpfs(folder: &Path, options: &str) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder)
            .stderr(Stdio::null())
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            eprintln!("skipped, because a tmpfs cannot be mounted here: run it as root");
            return None;
        }
        Some(Self(folder.to_owned()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: the store's thread may still be about to close its file.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
