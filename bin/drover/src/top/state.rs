//! What there is to see, and where the person who looks at it is.
//!
//! Never reads a clock, asks an agent or draws.

use std::collections::{BTreeMap, VecDeque};

use drover_api::{MigrationRole, MigrationView, RunView, StatusView};
use jiff::Timestamp;

use super::listing::{Listing, listing};
use crate::limits::{TOP_HISTORY, TOP_INPUT};

/// What is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Hosts,
    Guests,
    Nics,
    Migrations,
    Run,
}

impl View {
    pub const ALL: [Self; 5] = [
        Self::Hosts,
        Self::Guests,
        Self::Nics,
        Self::Migrations,
        Self::Run,
    ];

    /// Its name, also as a command.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hosts => "hosts",
            Self::Guests => "guests",
            Self::Nics => "nics",
            Self::Migrations => "migrations",
            Self::Run => "run",
        }
    }

    fn next(self) -> Self {
        let mut all = Self::ALL.into_iter().cycle();
        all.find(|view| *view == self);
        all.next().unwrap_or(self)
    }
}

/// What keys mean at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// They move the selection.
    Listing,
    /// One row is shown with all that is known of it.
    Detail(String),
    /// Every key is explained.
    Help,
    /// They are words to filter by.
    Filter,
    /// They are a command.
    Command(String),
}

/// A key, whatever terminal it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    /// Ctrl-C.
    Interrupt,
}

/// One answer of the agent, or why there is none.
pub type Answer = Result<Seen, String>;

/// What an agent told.
#[derive(Debug)]
pub struct Seen {
    pub status: StatusView,
    /// The newest run, or why none is known.
    pub run: Result<Option<RunView>, String>,
}

/// The screen's content.
#[derive(Debug)]
pub struct Top {
    /// The last answer, and when it came.
    pub seen: Option<(Seen, Timestamp)>,
    /// Since when nothing is heard, and why.
    pub away: Option<(Timestamp, String)>,
    pub view: View,
    pub mode: Mode,
    pub selected: usize,
    pub filter: String,
    /// What was wrong with the last command.
    pub message: Option<String>,
    /// Rates in bytes per second, the newest last.
    history: BTreeMap<String, VecDeque<u64>>,
}

impl Top {
    pub fn new() -> Self {
        Self {
            seen: None,
            away: None,
            view: View::Hosts,
            mode: Mode::Listing,
            selected: 0,
            filter: String::new(),
            message: None,
            history: BTreeMap::new(),
        }
    }

    /// Takes an answer.
    pub fn hear(&mut self, answer: Answer, now: Timestamp) {
        match answer {
            Ok(seen) => {
                self.remember(&rates(&seen.status));
                self.seen = Some((seen, now));
                self.away = None;
            }
            Err(problem) => {
                let since = self.away.take().map_or(now, |(since, _)| since);
                self.away = Some((since, problem));
            }
        }
        self.keep_in_list();
    }

    /// What is no longer there is forgotten, so that there is never more than there is to see.
    fn remember(&mut self, rates: &BTreeMap<String, u64>) {
        self.history.retain(|key, _| rates.contains_key(key));
        for (key, rate) in rates {
            let past = self.history.entry(key.clone()).or_default();
            past.push_back(*rate);
            while past.len() > TOP_HISTORY {
                past.pop_front();
            }
        }
    }

    /// The rates of something so far.
    pub fn past(&self, key: &str) -> impl DoubleEndedIterator<Item = u64> {
        self.history.get(key).into_iter().flatten().copied()
    }

    /// The rows of now.
    pub fn listing(&self) -> Listing {
        let mut listing = listing(self);
        let filter = self.filter.to_lowercase();
        let has = |cell: &String| cell.to_lowercase().contains(&filter);
        listing.rows.retain(|row| row.cells.iter().any(has));
        listing
    }

    fn keep_in_list(&mut self) {
        let last = self.listing().rows.len().saturating_sub(1);
        self.selected = self.selected.min(last);
    }

    /// Takes a key; whether the person wants to leave.
    pub fn press(&mut self, key: Key) -> bool {
        if key == Key::Interrupt {
            return true;
        }
        self.message = None;
        match std::mem::replace(&mut self.mode, Mode::Listing) {
            Mode::Listing => return self.in_listing(key),
            Mode::Filter => self.in_filter(key),
            Mode::Command(words) => return self.in_command(words, key),
            mode @ (Mode::Detail(_) | Mode::Help) => match key {
                Key::Escape | Key::Enter | Key::Backspace | Key::Char('q' | '?') => {}
                _ => self.mode = mode,
            },
        }
        self.keep_in_list();
        false
    }

    fn in_listing(&mut self, key: Key) -> bool {
        match key {
            Key::Char('q') => return true,
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char(':') => self.mode = Mode::Command(String::new()),
            Key::Down | Key::Char('j') => self.selected = self.selected.saturating_add(1),
            Key::Up | Key::Char('k') => self.selected = self.selected.saturating_sub(1),
            Key::Char('g') => self.selected = 0,
            Key::Char('G') => self.selected = usize::MAX,
            Key::Tab => self.show(self.view.next()),
            Key::Char(digit @ '1'..='5') => {
                let number = usize::from(digit as u8 - b'1');
                self.show(View::ALL[number]);
            }
            Key::Escape => self.filter.clear(),
            Key::Enter => {
                let rows = self.listing().rows;
                if let Some(row) = rows.get(self.selected) {
                    self.mode = Mode::Detail(row.key.clone());
                }
            }
            Key::Char(_) | Key::Backspace | Key::Interrupt => {}
        }
        self.keep_in_list();
        false
    }

    fn in_filter(&mut self, key: Key) {
        self.mode = Mode::Filter;
        match key {
            Key::Char(typed) if self.filter.chars().count() < TOP_INPUT => self.filter.push(typed),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.mode = Mode::Listing,
            Key::Escape => {
                self.filter.clear();
                self.mode = Mode::Listing;
            }
            _ => {}
        }
    }

    fn in_command(&mut self, mut words: String, key: Key) -> bool {
        match key {
            Key::Enter => return self.command(words.trim()),
            Key::Escape => return false,
            Key::Backspace if words.is_empty() => return false,
            Key::Backspace => drop(words.pop()),
            Key::Char(typed) if words.chars().count() < TOP_INPUT => words.push(typed),
            _ => {}
        }
        self.mode = Mode::Command(words);
        false
    }

    /// Nothing that can be said here changes anything but the screen.
    fn command(&mut self, words: &str) -> bool {
        let is_meant = |view: &View| !words.is_empty() && view.word().starts_with(words);
        match words {
            "" => {}
            "q" | "quit" => return true,
            "help" => self.mode = Mode::Help,
            _ => match View::ALL.into_iter().find(is_meant) {
                Some(view) => self.show(view),
                None => {
                    let views: Vec<_> = View::ALL.iter().map(|view| view.word()).collect();
                    let views = views.join(", ");
                    self.message = Some(format!(
                        "no command {words:?}; there is {views}, help, quit"
                    ));
                }
            },
        }
        false
    }

    fn show(&mut self, view: View) {
        self.view = view;
        self.selected = 0;
        self.filter.clear();
    }
}

/// Migrations that something can still happen to.
pub fn under_way(status: &StatusView) -> impl Iterator<Item = &MigrationView> {
    let all = status.migrations.iter();
    all.filter(|view| !view.phase.has_ended())
}

/// What migrations carry from this host, or to it; over one interface, or over all.
pub fn carried(status: &StatusView, role: MigrationRole, nic: Option<&str>) -> u64 {
    let of_it = under_way(status).filter(|view| view.role == role);
    let rate = |view: &MigrationView| match nic {
        None => view.rate.0,
        Some(name) => {
            let there = view.nics.iter().filter(|nic| nic.interface == name);
            there.map(|nic| nic.traffic.rate.0).sum()
        }
    };
    of_it.map(rate).sum()
}

fn rates(status: &StatusView) -> BTreeMap<String, u64> {
    let both = |nic| {
        carried(status, MigrationRole::Source, nic).saturating_add(carried(
            status,
            MigrationRole::Destination,
            nic,
        ))
    };
    let mut rates: BTreeMap<String, u64> = BTreeMap::new();
    rates.insert(format!("host {}", status.host.host), both(None));
    for nic in &status.host.interfaces {
        rates.insert(format!("nic {}", nic.name), both(Some(&nic.name)));
    }
    for view in under_way(status) {
        rates.insert(format!("migration {}", view.id), view.rate.0);
    }
    rates
}
