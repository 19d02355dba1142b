//! The agent under test.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use drover_api::{Client, StatusView};
use drover_lab::Host;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use tokio::process::Child;
use toml::{Table, Value};

use super::{Hosts, PATIENCE, until};

/// The agents' port for each other.
pub const PORT: u16 = 7470;

/// How long migrations wait for a path unless a test wants it otherwise.
pub const OUTAGE_LIMIT_S: i64 = 2;

/// A running agent.
pub struct Agent {
    child: Child,
    pub client: Client,
}

impl Agent {
    /// Starts one within a host's network and waits until it answers.
    pub async fn launch(host: &Host, log: &str, config: &Path, socket: &Path) -> Self {
        let arguments: [&OsStr; 4] = [
            "DROVER_LOG=info,droverd=debug".as_ref(),
            env!("CARGO_BIN_EXE_droverd").as_ref(),
            "--config".as_ref(),
            config.as_ref(),
        ];
        let env = drover_lab::command::find("env").unwrap();
        let mut child = host.start(log, &env, &arguments).unwrap();
        let client = Client::unix(socket);
        until(PATIENCE, async || {
            assert_eq!(child.try_wait().unwrap(), None, "the agent ended");
            client.host().await
        })
        .await;
        Self { child, client }
    }

    /// Ends it without a word.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

fn strings(values: impl IntoIterator<Item = String>) -> Value {
    Value::Array(values.into_iter().map(Value::String).collect())
}

fn table<'a>(parent: &'a mut Table, name: &str) -> &'a mut Table {
    let entry = parent.entry(name).or_insert_with(|| Table::new().into());
    entry.as_table_mut().unwrap()
}

/// Sets a key of a section, such as `set(config, "networks", "exclude", ["nic1"])`.
pub fn set<const N: usize>(config: &mut Table, section: &str, key: &str, values: [&str; N]) {
    let values = strings(values.map(str::to_owned));
    table(config, section).insert(key.to_owned(), values);
}

/// Sets a key of a section to one word.
pub fn set_word(config: &mut Table, section: &str, key: &str, word: &str) {
    table(config, section).insert(key.to_owned(), word.into());
}

/// Switches a key of a section on or off.
pub fn set_flag(config: &mut Table, section: &str, key: &str, on: bool) {
    table(config, section).insert(key.to_owned(), on.into());
}

impl Hosts {
    /// Writes the configuration of a host's agent, with changes.
    pub fn configure(&self, number: usize, change: impl FnOnce(&mut Table)) {
        let host = self.host(number);
        let path = |path: PathBuf| Value::String(path.to_str().unwrap().to_owned());
        let addresses = |number: usize| {
            let nics = 0..self.lab().settings().nics.len();
            strings(nics.map(|nic| format!("{}:{PORT}", self.host(number).address(nic))))
        };
        let mut config = Table::new();
        config.insert("host".into(), host.name.clone().into());
        config.insert("definitions".into(), path(host.definitions()));
        config.insert("state".into(), path(host.state()));
        config.insert("runtime".into(), path(host.runtime()));
        config.insert("memory_headroom".into(), 0.into());
        table(&mut config, "api").insert("listen".into(), addresses(number));
        // They are guests of the agents', whatever this machine has.
        set_word(&mut config, "libvirt", "uri", "off");
        // Tests of what happens when every path is lost for good do not wait for long.
        table(&mut config, "migration").insert("outage_limit_s".into(), OUTAGE_LIMIT_S.into());
        // They are of times and bytes over lines that they know.
        set_word(&mut config, "migration", "reduction", "off");
        // A guest that writes faster than is carried gives tests time to step in.
        let mut convergence = Table::new();
        convergence.insert("throttle".into(), "off".into());
        table(&mut config, "migration").insert("convergence".into(), convergence.into());
        let qemu = &self.lab().state().guests[0].qemu;
        set(&mut config, "qemu", "binaries", [qemu.to_str().unwrap()]);
        change(&mut config);
        fs::write(host.config(), config.to_string()).unwrap();
    }

    /// Has an agent serve, and look for its peer, at one NIC that carries no guests.
    pub fn talk_over(&self, number: usize, nic: usize) {
        let address = |number: usize| format!("{}:{PORT}", self.host(number).address(nic));
        self.configure(number, |config| {
            set(config, "api", "listen", [&address(number)]);
            set(
                config,
                "networks",
                "exclude",
                [&drover_lab::network::nic(nic)],
            );
            let mut other = Table::new();
            other.insert("host".into(), self.host(1 - number).name.into());
            other.insert("api".into(), address(1 - number).into());
            config.insert("peers".into(), Value::Array(vec![other.into()]));
        });
    }

    /// Starts a host's agent and waits until it answers.
    pub async fn start_agent(&mut self, number: usize) {
        let host = self.host(number);
        let agent = Agent::launch(&host, "droverd", &host.config(), &host.api_socket()).await;
        self.agents[number] = Some(agent);
    }

    /// Ends an agent without a word.
    pub async fn kill_agent(&mut self, number: usize) {
        self.agents[number].take().unwrap().kill().await;
    }

    /// Ends an agent in order; its exit code.
    pub async fn terminate_agent(&mut self, number: usize) -> Option<i32> {
        self.agent(number).signal(Signal::TERM);
        self.agent_ends(number).await
    }

    /// Waits for the end of an agent that was told to; its exit code.
    pub async fn agent_ends(&mut self, number: usize) -> Option<i32> {
        let mut agent = self.agents[number].take().unwrap();
        let ended = tokio::time::timeout(PATIENCE, agent.child.wait()).await;
        ended.expect("the agent does not end").unwrap().code()
    }

    pub fn runs_agent(&self, number: usize) -> bool {
        self.agents[number].is_some()
    }

    pub async fn status(&self, number: usize) -> StatusView {
        self.client(number).status().await.unwrap()
    }
}
