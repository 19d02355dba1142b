//! A host of a few files, and hands that die at any call.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; none uses all"
)]

mod fate;
mod paths;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use drover_change::{
    Account, Hands, Journal, Layers, Now, Order, Outcome, PathSizes, PathTo, Performed, Plan,
    Planned, Runner, Sizes,
};
use drover_tune::lasting::{End, Place, Rewrite};
use drover_tune::{Disruption, Step};
use drover_types::{HostName, Layer};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use fate::Fate;
pub use paths::sized;

pub const BOOT: &str = "this boot";
pub const OTHER_BOOT: &str = "the next boot";

/// What the name of a file ends with that is written beside another one.
const BESIDE: &str = ".new";

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
    /// Until when no large packets cross.
    narrow_until: Cell<Option<Instant>>,
    name: HostName,
    /// A journal that nobody has run.
    made: RefCell<Option<Journal>>,
    /// The attempts to find out what crosses.
    pub attempts: RefCell<Vec<u32>>,
    /// What readers of files in `etc` know of them while they run.
    known: RefCell<Tree>,
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
        let world = Self {
            root,
            fate: RefCell::default(),
            calls: Cell::new(0),
            dead: Notify::new(),
            silent_until: Cell::default(),
            busy_until: Cell::default(),
            narrow_until: Cell::default(),
            name: "a".parse().unwrap(),
            made: RefCell::default(),
            attempts: RefCell::default(),
            known: RefCell::default(),
            seen: RefCell::default(),
        };
        world.readers_start();
        world
    }

    /// Those who read files while they run read them as they start.
    fn readers_start(&self) {
        *self.known.borrow_mut() = self.etc();
    }

    /// What they read: no folders, and nothing that is only being written beside a file.
    fn etc(&self) -> Tree {
        let mut all = self.all();
        let is_read = |path: &str| {
            path.starts_with("etc/") && !path.ends_with('/') && !path.ends_with(BESIDE)
        };
        all.retain(|path, _| is_read(path));
        all
    }

    /// Whether readers know all files as they are.
    pub fn is_known(&self) -> bool {
        *self.known.borrow() == self.etc()
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

    /// Has these files be there, and no others, as the host starts.
    pub fn restore(&self, tree: &Tree) {
        let host = self.root.path().join("host");
        let _ = fs::remove_dir_all(&host);
        for (path, value) in tree {
            let (folder, name) = path.rsplit_once('/').unwrap();
            let folder = self.file(folder);
            fs::create_dir_all(&folder).unwrap();
            if !name.is_empty() {
                fs::write(folder.join(name), value).unwrap();
            }
        }
        self.readers_start();
    }

    /// All files of the host, whoever they are of; and folders without any, with a slash at their end.
    pub fn all(&self) -> Tree {
        let mut all = Tree::new();
        let host = self.root.path().join("host");
        let mut folders = vec![host.clone()];
        while let Some(folder) = folders.pop() {
            let mut is_empty = true;
            for entry in fs::read_dir(&folder).unwrap() {
                is_empty = false;
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let value = fs::read_to_string(&path).unwrap();
                    let path = path.strip_prefix(&host).unwrap();
                    all.insert(path.display().to_string(), value);
                }
            }
            if is_empty {
                let folder = folder.strip_prefix(&host).unwrap();
                all.insert(format!("{}/", folder.display()), String::new());
            }
        }
        all
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

    /// What is at a file's place, and where what is new of it is written first.
    pub fn place(&self, path: &str) -> Result<Place, String> {
        let there = self.file(&path[1..]);
        let folder = there.parent().unwrap();
        let folders = if folder.exists() {
            Vec::new()
        } else {
            vec![path.rsplit_once('/').unwrap().0.to_owned()]
        };
        Ok(Place {
            text: fs::read_to_string(&there).ok(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            folders,
        })
    }

    fn beside(&self, path: &str) -> PathBuf {
        self.file(&format!("{}{BESIDE}", &path[1..]))
    }

    /// Whether a file has the value that something depends on.
    fn has(&self, value: Option<&(String, String)>) -> bool {
        value.is_some_and(|(path, value)| fs::read_to_string(self.file(path)).unwrap() == *value)
    }

    /// The interface by which the path to `b` leaves, and its largest packet: `nic0` with what its file says; or the bridge over it, if there is
    /// one, which follows it unless its file says what somebody set.
    pub fn leaves_by(&self) -> (&str, u32) {
        let read = |nic: &str| fs::read_to_string(self.file(nic)).ok();
        let nic0 = read("nic0").map_or(9000, |mtu| mtu.parse().unwrap());
        match read("br0") {
            Some(mtu) => ("br0", mtu.parse().unwrap_or(nic0)),
            None => ("nic0", nic0),
        }
    }

    /// What crosses it, to a far end that takes 9000 bytes.
    fn crosses(&self) -> Result<Now, String> {
        let fate = self.fate.borrow();
        if self.has(fate.unmeasured.as_ref()) {
            return Err("nothing came back".to_owned());
        }
        let (_, mtu) = self.leaves_by();
        let below = fs::read_to_string(self.file("nic0")).ok();
        let own = below.map_or(mtu, |below| mtu.min(below.parse().unwrap()));
        let until = self.narrow_until.get();
        let is_narrow = until.is_some_and(|until| Instant::now() < until);
        let network = if is_narrow || self.has(fate.narrowed_by.as_ref()) {
            1500
        } else {
            9000
        };
        let (there, back) = (own.min(network), own.min(network));
        let sizes = Sizes { there, back };
        Ok(Now { sizes, mtu })
    }

    /// That is found out, if the time is enough.
    async fn asked(&self, within: Duration) -> Result<Now, String> {
        let asking = self.fate.borrow().asking;
        if !asking.is_zero() {
            tokio::time::sleep(asking.min(within)).await;
        }
        if asking > within {
            return Err("the time for asking was over".to_owned());
        }
        self.crosses()
    }

    fn layers(&self) -> Layers {
        let read = |nic: &str| fs::read_to_string(self.file(nic)).ok();
        let (addressed, _) = self.leaves_by();
        let layer = |nic: &str, on: &[&str], mtu: u32, follows: bool| {
            let layer = Layer {
                on: on.iter().map(|nic| (*nic).to_owned()).collect(),
                mtu,
                follows,
                has_address: nic == addressed,
            };
            (nic.to_owned(), layer)
        };
        let nic0 = read("nic0").map(|mtu| layer("nic0", &[], mtu.parse().unwrap(), false));
        let br0 = read("br0").map(|mtu| {
            let follows = mtu.parse::<u32>().is_err();
            layer("br0", &["nic0"], self.leaves_by().1, follows)
        });
        nic0.into_iter().chain(br0).collect()
    }

    /// Has large packets be lost for a while, if they are to be.
    fn narrow(&self) {
        let until = self.fate.borrow().narrow_for;
        let until = until.map(|time| Instant::now() + time);
        self.narrow_until.set(self.narrow_until.get().or(until));
    }

    /// The path that migrations take, with that.
    fn sized(&self, Now { sizes, mtu }: Now) -> PathSizes {
        let (nic, _) = self.leaves_by();
        PathSizes {
            nic: nic.to_owned(),
            mtu,
            ..sized(sizes)
        }
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

    /// Takes as long as what is done takes.
    async fn dawdle(&self) {
        let slow = self.fate.borrow().slow;
        if let Some(slow) = slow {
            tokio::time::sleep(slow).await;
        }
    }

    /// How long the journal is.
    fn written(&self) -> u64 {
        fs::metadata(self.journal_file()).map_or(0, |file| file.len())
    }

    async fn call(&self) {
        let call = self.calls.get();
        self.calls.set(call + 1);
        self.seen.borrow_mut().push((self.written(), self.all()));
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
        let host = self.host(fate);
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
        self.undo_after(fate, BOOT).await
    }

    /// The same on a host with this boot id.
    pub async fn undo_after(&self, fate: Fate, boot: &str) -> Option<Result<Outcome, String>> {
        let mut journal = Journal::open(&self.folder()).unwrap();
        let host = self.host(fate);
        let mut runner = Runner {
            journal: &mut journal,
            hands: &host,
            paths: &host,
            host: &self.name,
            boot,
        };
        tokio::select! {
            biased;
            () = self.dead.notified() => None,
            outcome = runner.undo() => Some(outcome.map_err(|error| error.to_string())),
        }
    }

    fn host(&self, fate: Fate) -> Host<'_> {
        *self.fate.borrow_mut() = fate;
        self.silent_until.set(None);
        self.busy_until.set(None);
        self.narrow_until.set(None);
        self.calls.set(0);
        self.seen.borrow_mut().clear();
        Host { world: self }
    }
}

struct Host<'a> {
    world: &'a World,
}

fn path_of(step: &Step) -> &str {
    match step {
        Step::File { path, .. } => path,
        // Whatever is set of it.
        Step::Nic { nic, .. } => nic,
    }
}

impl Hands for Host<'_> {
    async fn current(&self, step: &Step) -> Result<String, String> {
        self.world.call().await;
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

    async fn perform(&self, step: &Step, to: End) -> Result<Performed, String> {
        self.world.call().await;
        let path = path_of(step);
        let forward = to == End::After;
        let (Step::File { from, to, .. } | Step::Nic { from, to, .. }) = step;
        let to = if forward { to } else { from };
        if self.world.fate.borrow().passes_by.as_deref() == Some(path) {
            return Ok(Performed::PassedBy(
                "the kernel spreads it by itself".to_owned(),
            ));
        }
        if !forward && self.world.is_busy() {
            return Err("it is busy".to_owned());
        }
        if forward {
            self.world.dawdle().await;
        }
        {
            let fate = self.world.fate.borrow();
            let silent = if forward { fate.late } else { fate.silent };
            if let Some(silent) = silent {
                self.world.silent_until.set(Some(Instant::now() + silent));
            }
            let (becomes, refuses) = match forward {
                true => (&fate.becomes, &fate.refuses),
                false => (&fate.becomes_back, &fate.refuses_back),
            };
            let refuses = refuses.as_deref() == Some(path);
            match becomes {
                Some((one, value)) if one == path => self.world.set(path, value),
                _ if refuses => {}
                _ => self.world.set(path, to),
            }
            if refuses {
                return Err("it is not taken".to_owned());
            }
        }
        // Once more, so that one dies after it was done and before it could say so.
        self.world.call().await;
        Ok(Performed::Done)
    }

    async fn carries(&self, _: &str) -> Result<bool, String> {
        self.world.call().await;
        let fate = self.world.fate.borrow();
        if self.world.has(fate.deaf.as_ref()) {
            return Err("netlink does not answer".to_owned());
        }
        Ok(!self.world.has(fate.drops.as_ref()))
    }

    async fn place(&self, path: &str) -> Result<Place, String> {
        self.world.call().await;
        self.world.place(path)
    }

    async fn put(&self, file: &Rewrite, to: End) -> Result<(), String> {
        self.world.call().await;
        let there = self.world.file(&file.path[1..]);
        let beside = self.world.beside(&file.path);
        let _ = fs::remove_file(&beside);
        let is_refused = self.world.fate.borrow().refuses.as_ref() == Some(&file.path);
        if to == End::After {
            self.world.dawdle().await;
        }
        let text = match to {
            End::After if is_refused => return Err("it is not taken".to_owned()),
            End::After => Some(&file.after),
            End::Before => file.before.as_ref(),
        };
        let Some(text) = text else {
            self.world.call().await;
            let _ = fs::remove_file(&there);
            self.world.call().await;
            for folder in file.folders.iter().rev() {
                let _ = fs::remove_dir(self.world.file(&folder[1..]));
            }
            return Ok(());
        };
        fs::create_dir_all(there.parent().unwrap()).unwrap();
        // One dies before it has its name, and before that could be said.
        fs::write(&beside, text).unwrap();
        self.world.call().await;
        fs::rename(&beside, &there).unwrap();
        self.world.call().await;
        Ok(())
    }

    async fn goes_by(&self, file: &Rewrite) -> Result<(), String> {
        let over = self.world.file(&format!("run{}", file.path));
        match over.exists() {
            true => Err("there is another one in /run".to_owned()),
            false => Ok(()),
        }
    }

    async fn reread(&self, files: &[&Rewrite]) -> Result<(), String> {
        self.world.call().await;
        if self.world.fate.borrow().unread {
            return Err("nobody answers".to_owned());
        }
        for file in files {
            let path = &file.path[1..];
            let mut known = self.world.known.borrow_mut();
            match fs::read_to_string(self.world.file(path)) {
                Ok(text) => known.insert(path.to_owned(), text),
                Err(_) => known.remove(path),
            };
        }
        // Once more, so that one dies after they know and before that could be said.
        self.world.call().await;
        Ok(())
    }

    async fn tidy(&self, path: &str) -> Result<(), String> {
        self.world.call().await;
        let _ = fs::remove_file(self.world.beside(path));
        Ok(())
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
            lasting: None,
        },
        links: Vec::new(),
        moving: 0,
        lasting: None,
        paths: vec![PathTo {
            host: "b".parse().unwrap(),
            nic: "nic0".into(),
            from: "10.0.0.1".parse().unwrap(),
            to: "10.0.0.2:1".parse().unwrap(),
        }],
    }
}
