//! Hosts with real agents on the loopback, and the people who use them.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "helpers of tests, not all used by each of them"
)]

#[path = "../../../droverd/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{Agent, Place, free_address};
use tempfile::TempDir;

pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// What a command said that did what it was asked, and had nothing else to say.
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self.stdout
    }

    pub fn document(&self) -> Value {
        assert_eq!(self.stderr, "", "everything is in the document");
        serde_json::from_str(&self.stdout).unwrap()
    }
}

fn run(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A host and its agent.
pub struct Host {
    pub place: Place,
    agent: Option<Agent>,
    pub address: SocketAddr,
}

impl Host {
    pub async fn start(name: &'static str) -> Self {
        let address = free_address();
        let place = Place::named(name);
        place.configure(&format!("[api]\nlisten = [\"{address}\"]"));
        let agent = Some(place.start().await);
        Self {
            place,
            agent,
            address,
        }
    }

    /// Ends the agent.
    pub fn stop(&mut self) {
        assert_eq!(self.agent.take().map(Agent::terminate), Some(Some(0)));
    }

    /// Starts it again.
    pub async fn start_again(&mut self) {
        self.agent = Some(self.place.start().await);
    }

    /// Makes it another host at the same address, with the same name.
    pub async fn set_up_anew(&mut self) {
        self.stop();
        std::fs::remove_dir_all(self.place.path("state")).unwrap();
        self.start_again().await;
    }

    /// A command on this host, of somebody who has no home.
    pub fn drover(&self, arguments: &[&str]) -> Ran {
        let mut command = homeless();
        run(command
            .args(arguments)
            .env("DROVER_SOCKET", self.place.socket()))
    }

    pub fn done(&self, arguments: &[&str]) -> String {
        self.drover(arguments).done()
    }

    pub fn join(&self, other: &Host) {
        let token = self.done(&["cluster", "token"]);
        other.done(&["cluster", "join", token.trim()]);
    }
}

fn homeless() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
    command.env_remove("HOME").env_remove("XDG_STATE_HOME");
    command
}

/// A command on a machine without an agent.
pub fn remote(url: &str, identity: &Path, arguments: &[&str]) -> Ran {
    let file = identity.to_str().unwrap();
    let agent = ["--agent", url, "--identity", file];
    run(homeless().args(agent).args(arguments))
}

/// Somebody who has used clusters, and whose machine has no agent.
pub struct Person {
    state: TempDir,
}

impl Person {
    pub fn new() -> Self {
        Self {
            state: tempfile::tempdir().unwrap(),
        }
    }

    /// The file with the clusters.
    pub fn file(&self) -> PathBuf {
        self.state.path().join("drover/recent.json")
    }

    pub fn drover(&self, arguments: &[&str]) -> Ran {
        let mut command = homeless();
        run(command
            .args(arguments)
            .env("XDG_STATE_HOME", self.state.path())
            .env("DROVER_SOCKET", "/nowhere"))
    }

    /// The same, on a host.
    pub fn on(&self, host: &Host, arguments: &[&str]) -> Ran {
        let socket = host.place.socket();
        let socket = ["--socket", socket.to_str().unwrap()];
        self.drover(&[&socket, arguments].concat())
    }

    /// Name and state of each cluster, as `drover recent` finds them.
    pub fn clusters(&self) -> Vec<(String, String)> {
        let document = self.drover(&["recent", "--json"]).document();
        let clusters = document["clusters"].as_array().unwrap().iter();
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        clusters
            .map(|cluster| (word(&cluster["name"]), word(&cluster["state"])))
            .collect()
    }
}
