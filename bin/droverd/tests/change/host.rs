//! A host whose agent is told to change it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use drover_api::{
    ChangePlanRequest, ChangeRequest, ChangeState, ChangeView, Client, ClientError, UndoRequest,
};
use drover_change::Account;
use drover_tune::facts::{Counters, Fact, Host as Facts};
use drover_types::ChangeId;

use crate::network::Network;
use crate::provision::Office;
use crate::support::{Agent, Place};

/// For anything to happen on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Host `a`, in a cluster with a `b` whose kernel answers.
pub struct Host {
    pub network: Network,
    pub place: Place,
    /// What lies over what, for its agent and the processes of that alone: `ip netns exec` makes them mounts of their own.
    pub mounts: Vec<(PathBuf, &'static str)>,
    agent: Option<Agent>,
}

impl Host {
    /// `None`, and said so, where there can be none.
    pub async fn new(test: &str) -> Option<Self> {
        let network = Network::new(test)?;
        let place = Place::new();
        let mut office = Office::new();
        let at = |host: u32| (0..2).map(move |nic| format!("10.77.{nic}.{host}:7470").parse());
        for (host, name) in [(1, "a"), (2, "b")] {
            office.admit(name, at(host).collect::<Result<_, _>>().unwrap());
        }
        office.settle(&place.path("state"), "a");
        let mut host = Self {
            network,
            place,
            mounts: Vec::new(),
            agent: None,
        };
        host.start().await;
        Some(host)
    }

    /// A shell's line on this host, with what lies over what there.
    pub fn command(&self, line: &str) -> Command {
        let mounts = self.mounts.iter();
        let mounts =
            mounts.map(|(what, over)| format!("mount --bind {} {over} && ", what.display()));
        let mut command = self.network.command("sh");
        command.args(["-c", &(mounts.collect::<String>() + line)]);
        command
    }

    /// Starts its agent.
    pub async fn start(&mut self) {
        let droverd = self.place.droverd();
        let mut command = self.command("exec \"$0\" \"$@\"");
        command.arg(droverd.get_program()).args(droverd.get_args());
        command.env_remove("JOURNAL_STREAM");
        self.agent = Some(self.place.start_by(command).await);
    }

    /// Ends its agent without a word.
    pub fn kill_agent(&mut self) {
        self.agent.take().unwrap().kill();
    }

    pub fn client(&self) -> &Client {
        &self.agent.as_ref().unwrap().client
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.path("log")).unwrap_or_default()
    }

    /// All that is known of it, but what counts up by itself.
    pub async fn facts(&self) -> Facts {
        settled(self.client().facts().await.unwrap().facts)
    }

    /// What its doctor wants to be changed.
    pub async fn plan(&self) -> String {
        let request = ChangePlanRequest::default();
        let view = self.client().plan_changes(&request).await.unwrap();
        view.plan.clone().unwrap_or_else(|| panic!("{view:#?}"))
    }

    pub async fn apply(&self, plan: &str) -> Result<ChangeView, ClientError> {
        self.apply_with(plan, false).await
    }

    pub async fn apply_with(&self, plan: &str, force: bool) -> Result<ChangeView, ClientError> {
        self.order(ChangeRequest {
            plan: plan.to_owned(),
            force,
            persist: false,
        })
        .await
    }

    pub async fn order(&self, request: ChangeRequest) -> Result<ChangeView, ClientError> {
        self.client().apply_changes(&request).await
    }

    pub async fn undo(&self, id: ChangeId) -> Result<ChangeView, ClientError> {
        let request = UndoRequest { force: true };
        self.client().undo_change(id, &request).await
    }

    /// A change once it is at its end.
    pub async fn ended(&self, id: ChangeId) -> ChangeView {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let view = self.client().change(id).await.unwrap().change;
            if view.state.has_ended() {
                return view;
            }
            assert!(Instant::now() < deadline, "{view:#?}\n{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Applies a plan, to its end.
    pub async fn applied(&self, plan: &str) -> ChangeView {
        let id = self.apply(plan).await.unwrap().id;
        let view = self.ended(id).await;
        assert_eq!(view.state, ChangeState::Applied, "{view:#?}");
        view
    }

    pub fn folder(&self, id: ChangeId) -> PathBuf {
        self.place.path("state/changes").join(id.to_string())
    }

    pub fn account(&self, id: ChangeId) -> Account {
        Account::read(&self.folder(id)).unwrap()
    }

    /// Waits until a change's journal has so many records, whoever is alive.
    pub async fn when_written(&self, id: ChangeId, records: usize) -> Account {
        self.when(id, |account| account.records.len() >= records)
            .await
    }

    /// Waits until a change is at its end, whoever is alive.
    pub async fn when_ended(&self, id: ChangeId) -> Account {
        self.when(id, |account| account.standing.has_ended()).await
    }

    async fn when(&self, id: ChangeId, accept: impl Fn(&Account) -> bool) -> Account {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let account = self.account(id);
            if accept(&account) {
                return account;
            }
            assert!(Instant::now() < deadline, "{account:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the agent has cleared a folder up.
    pub async fn when_gone(&self, folder: &Path) {
        let deadline = Instant::now() + PATIENCE;
        while folder.exists() {
            assert!(Instant::now() < deadline, "{}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Kills the process that carries a change out; whether there was one.
    pub fn kill_process(&self, id: ChangeId) -> bool {
        self.signal_process(id, "-KILL")
    }

    /// Sends it this signal; whether there was one.
    pub fn signal_process(&self, id: ChangeId, signal: &str) -> bool {
        self::signal(&self.folder(id), signal)
    }

    /// Waits until it has ended, beyond its last record.
    pub async fn when_process_gone(&self, id: ChangeId) {
        let deadline = Instant::now() + PATIENCE;
        while !processes(&self.folder(id)).is_empty() {
            assert!(Instant::now() < deadline, "{id} has not ended");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Has the agent, and all processes that it starts, take a while to begin and for each record that they write.
    pub fn slow_down(&self) {
        let agent = self.agent.as_ref().unwrap().pid().to_string();
        let mut strace = Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &agent])
            .args(["-e", "trace=execve,fsync,fdatasync"])
            .args(["-e", "inject=fsync,fdatasync:delay_enter=100000"])
            .args(["-e", "inject=execve:delay_exit=500000"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(strace.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        // It goes on to tell of threads, until all have ended.
        std::thread::spawn(move || (said.lines().count(), strace.wait()));
    }
}

/// Sends the process that is about the change in this folder this signal; whether there was one.
pub fn signal(folder: &Path, signal: &str) -> bool {
    let told = processes(folder).into_iter().map(|pid| {
        // It may have ended since it was looked for.
        let told = Command::new("kill")
            .args([signal, &pid.to_string()])
            .output();
        told.unwrap().status.success()
    });
    told.fold(false, |any, told| any | told)
}

fn processes(folder: &Path) -> Vec<u32> {
    let folder = folder.display().to_string();
    let listed = Command::new("pgrep").args(["-f", &folder]).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    listed.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// How often something was killed, by what came of it in the end. A round that came to anything by halves has failed before it is counted.
#[derive(Debug, Default)]
pub struct Deaths(BTreeMap<String, usize>);

impl Deaths {
    pub fn came_to(&mut self, outcome: &str) {
        *self.0.entry(outcome.to_owned()).or_default() += 1;
    }

    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// One line, for docs/measurements/doctor.md.
    pub fn tell(&self, what: &str) {
        let count = self.count();
        let ends = self.0.iter().map(|(end, count)| format!("{count} {end}"));
        let ends = ends.collect::<Vec<_>>().join(", ");
        println!("\n{what}: killed at {count} points: {count} of {count}, {ends}");
    }
}

/// How often something is killed: as often as `DROVER_KILLS` says, or else so often.
pub fn kills(otherwise: usize) -> usize {
    std::env::var("DROVER_KILLS").map_or(otherwise, |text| text.parse().unwrap())
}

/// At which of a journal's records something is killed: as often as [`kills`] says, spread over all of them from the last one back.
pub fn records_of(all: usize, otherwise: usize) -> impl Iterator<Item = usize> {
    let count = kills(otherwise);
    let step = (all / count.max(1)).max(1);
    (0..all).rev().step_by(step).cycle().take(count)
}

/// Facts without what counts up by itself, and what each start of a host has of its own.
pub fn settled(mut facts: Facts) -> Facts {
    facts.uptime_s = Fact::unknown("it counts up");
    facts.boot = Fact::unknown("it is another one after a restart");
    facts.waking = Fact::unknown("guests of other tests hold this machine's processors");
    facts.softnet = Fact::unknown("it counts up");
    facts.memory.huge = Fact::unknown("guests of other tests come and go");
    for nic in &mut facts.nics {
        nic.counters = Fact::<Counters>::unknown("they count up");
    }
    facts
}
