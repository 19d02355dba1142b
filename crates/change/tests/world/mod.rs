//! A host of a few files, and hands that die at any call.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; none uses all"
)]

mod fate;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use drover_change::{
    Account, Hands, Journal, Order, Outcome, PathTo, Paths, Plan, Planned, Runner,
};
use drover_tune::{Disruption, Step};
use drover_types::HostName;
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use fate::Fate;

pub const BOOT: &str = "this boot";
pub const OTHER_BOOT: &str = "the next boot";

pub type Tree = BTreeMap<String, String>;

pub struct World {
    root: TempDir,
    fate: RefCell<Fate>,
    calls: Cell<usize>,
    dead: Notify,
    /// Until when nothing is told.
    silent_until: Cell<Option<Instant>>,
    /// Until when nothing is taken back.
    busy_until: Cell<Option<Instant>>,
    name: HostName,
    /// A journal that nobody has run.
    made: RefCell<Option<Journal>>,
    /// Before each call: how long the journal was, and what was there.
    pub seen: RefCell<Vec<(u64, Tree)>>,
}

impl World {
    pub fn of(files: &[(&str, &str)]) -> Self {
        let memory = ["/dev/shm", "/tmp"]
            .into_iter()
            .find(|folder| fs::metadata(folder).is_ok());
        let root = TempDir::new_in(memory.unwrap()).unwrap();
        for (path, value) in files {
            let path = root.path().join("host").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        Self {
            root,
            fate: RefCell::default(),
            calls: Cell::new(0),
            dead: Notify::new(),
            silent_until: Cell::default(),
            busy_until: Cell::default(),
            name: "a".parse().unwrap(),
            made: RefCell::default(),
            seen: RefCell::default(),
        }
    }

    pub fn folder(&self) -> PathBuf {
        self.root.path().join("change")
    }

    /// Makes the plan's folder, for the next process to begin with.
    pub fn make(&self, order: &Order) {
        *self.made.borrow_mut() = Some(Journal::make(&self.folder(), order).unwrap());
    }

    /// As if the process that made it had died.
    pub fn forget(&self) {
        self.made.borrow_mut().take();
    }

    pub fn account(&self) -> Account {
        Account::read(&self.folder()).unwrap()
    }

    pub fn journal_file(&self) -> PathBuf {
        self.folder().join("journal")
    }

    fn file(&self, path: &str) -> PathBuf {
        self.root.path().join("host").join(path)
    }

    pub fn set(&self, path: &str, value: &str) {
        fs::write(self.file(path), value).unwrap();
    }

    pub fn restore(&self, tree: &Tree) {
        tree.iter().for_each(|(path, value)| self.set(path, value));
    }

    pub fn tree(&self, plan: &Plan) -> Tree {
        let paths = plan.steps().map(path_of);
        paths
            .map(|path| {
                (
                    path.to_owned(),
                    fs::read_to_string(self.file(path)).unwrap(),
                )
            })
            .collect()
    }

    /// Whether a file has the value that something depends on.
    fn has(&self, value: Option<&(String, String)>) -> bool {
        value.is_some_and(|(path, value)| fs::read_to_string(self.file(path)).unwrap() == *value)
    }

    /// Whether what is to be taken back is refused now.
    fn is_busy(&self) -> bool {
        let busy = self.fate.borrow().busy;
        busy.is_some_and(|busy| {
            let until = self.busy_until.get().unwrap_or(Instant::now() + busy);
            self.busy_until.set(Some(until));
            Instant::now() < until
        })
    }

    /// How long the journal is.
    fn written(&self) -> u64 {
        fs::metadata(self.journal_file()).map_or(0, |file| file.len())
    }

    async fn call(&self, plan: &Plan) {
        let call = self.calls.get();
        self.calls.set(call + 1);
        self.seen
            .borrow_mut()
            .push((self.written(), self.tree(plan)));
        if let Some((at, path, value)) = &self.fate.borrow().meddles
            && *at == call
        {
            self.set(path, value);
        }
        if self.fate.borrow().disk_gone_at == Some(call) {
            fs::rename(self.folder(), self.root.path().join("gone")).unwrap();
        }
        if self.fate.borrow().dies_at == Some(call) {
            self.dead.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// Runs a process on the plan's folder; `None` if it died.
    pub async fn process(&self, fate: Fate, boot: &str) -> Option<Outcome> {
        let made = self.made.borrow_mut().take();
        let mut journal = made.unwrap_or_else(|| Journal::open(&self.folder()).unwrap());
        self.run(&mut journal, fate, boot).await
    }

    /// The journal that was made and that nobody has run.
    pub fn taken(&self) -> Journal {
        self.made.borrow_mut().take().unwrap()
    }

    /// Runs what is open; `None` if the process died.
    pub async fn run(&self, journal: &mut Journal, fate: Fate, boot: &str) -> Option<Outcome> {
        let host = self.host(journal, fate);
        let (hands, paths) = (&host, &host);
        let mut runner = Runner {
            journal,
            hands,
            paths,
            host: &self.name,
            boot,
        };
        tokio::select! {
            biased;
            () = self.dead.notified() => None,
            outcome = runner.run() => Some(outcome),
        }
    }

    /// The same, and undoes it.
    pub async fn undo(&self, fate: Fate) -> Option<Result<Outcome, String>> {
        let mut journal = Journal::open(&self.folder()).unwrap();
        let host = self.host(&journal, fate);
        let mut runner = Runner {
            journal: &mut journal,
            hands: &host,
            paths: &host,
            host: &self.name,
            boot: BOOT,
        };
        tokio::select! {
            biased;
            () = self.dead.notified() => None,
            outcome = runner.undo() => Some(outcome.map_err(|error| error.to_string())),
        }
    }

    fn host(&self, journal: &Journal, fate: Fate) -> Host<'_> {
        *self.fate.borrow_mut() = fate;
        self.silent_until.set(None);
        self.busy_until.set(None);
        self.calls.set(0);
        self.seen.borrow_mut().clear();
        let plan = journal.account().order.plan.clone();
        Host { world: self, plan }
    }
}

struct Host<'a> {
    world: &'a World,
    plan: Plan,
}

fn path_of(step: &Step) -> &str {
    let Step::File { path, .. } = step else {
        panic!("{step} is about no file")
    };
    path
}

impl Hands for Host<'_> {
    async fn current(&self, step: &Step) -> Result<String, String> {
        self.world.call(&self.plan).await;
        let until = self.world.silent_until.get();
        if until.is_some_and(|until| Instant::now() < until) {
            return Err("the link is down".to_owned());
        }
        let mute = self.world.fate.borrow().mute.clone();
        let mute = mute.filter(|(path, _)| path == path_of(step));
        if self.world.has(mute.as_ref()) {
            return Err("it tells nothing".to_owned());
        }
        fs::read_to_string(self.world.file(path_of(step))).map_err(|error| error.to_string())
    }

    async fn perform(&self, step: &Step) -> Result<(), String> {
        self.world.call(&self.plan).await;
        let path = path_of(step);
        let Step::File { to, .. } = step else {
            return Ok(());
        };
        if to == "1" && self.world.is_busy() {
            return Err("it is busy".to_owned());
        }
        {
            let fate = self.world.fate.borrow();
            let forward = to != "1";
            if let Some(silent) = fate.silent.filter(|_| !forward) {
                self.world.silent_until.set(Some(Instant::now() + silent));
            }
            let refuses = forward && fate.refuses.as_deref() == Some(path);
            match &fate.becomes {
                Some((one, value)) if one == path && forward => self.world.set(path, value),
                _ if refuses => {}
                _ => self.world.set(path, to),
            }
            if refuses {
                return Err("it is not taken".to_owned());
            }
        }
        // Once more, so that one dies after it was done and before it could say so.
        self.world.call(&self.plan).await;
        Ok(())
    }

    async fn carries(&self, _: &str) -> Result<bool, String> {
        self.world.call(&self.plan).await;
        let fate = self.world.fate.borrow();
        if self.world.has(fate.deaf.as_ref()) {
            return Err("netlink does not answer".to_owned());
        }
        Ok(!self.world.has(fate.drops.as_ref()))
    }
}

impl Paths for Host<'_> {
    async fn work(&self, paths: &[PathTo]) -> Vec<bool> {
        self.world.call(&self.plan).await;
        let cut_off_by = self.world.fate.borrow().cut_off_by.clone();
        let cut_off = cut_off_by.is_some_and(|(path, value)| {
            fs::read_to_string(self.world.file(&path)).unwrap() == value
        });
        if cut_off && self.world.fate.borrow().unanswered {
            return Vec::new();
        }
        paths.iter().map(|_| !cut_off).collect()
    }
}

pub fn step(path: &str, from: &str, to: &str) -> Step {
    Step::File {
        path: path.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
    }
}

/// Two changes, one after the other, and one path.
pub fn order(changes: Vec<Vec<Step>>) -> Order {
    let changes = changes.into_iter().map(|steps| Planned {
        rule: "a-rule".into(),
        nic: None,
        disruption: Disruption::Safe,
        why: "because".into(),
        steps,
    });
    Order {
        plan: Plan {
            host: "a".parse().unwrap(),
            boot: BOOT.into(),
            made_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            version: "1".into(),
            changes: changes.collect(),
        },
        links: Vec::new(),
        paths: vec![PathTo {
            host: "b".parse().unwrap(),
            nic: "nic0".into(),
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2:1".parse().unwrap(),
        }],
    }
}
