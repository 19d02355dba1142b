//! A coordinator that writes before it does, loses messages, and dies; and the one that comes after it.

use std::collections::BTreeSet;
use std::time::Duration;

use drover_execute::journal::{Began, Cancel, Entry, ParkOutcome, UnixMillis};
use drover_execute::{Answer, Ask, MoveState, Now, Outcome, Run};
use drover_types::{HostName, MigrationId, VmName};
use uuid::Uuid;

use crate::world::{Weather, World};

const TICK: Duration = Duration::from_millis(100);

/// Ticks after which an answer that has not come is given up.
const PATIENCE: u64 = 8;

/// A message on its way.
struct Message {
    ask: Ask,
    arrives: u64,
    /// When its answer is back; none if that is lost.
    answered: Option<u64>,
    answer: Option<Answer>,
    /// The coordinator that sent it is still there.
    is_awaited: bool,
    sent: u64,
}

pub struct Driver {
    pub world: World,
    /// Hosts that took no guests before the run.
    pub cordoned_before: Vec<HostName>,
    weather: Weather,
    pub journal: Vec<Entry>,
    pub run: Run,
    messages: Vec<Message>,
    tick: u64,
    /// What an operator will say, and when.
    pub cancel: Option<(u64, Cancel)>,
    /// Coordinators that died.
    pub deaths: u64,
    /// Dies at this entry of the journal: before it is written, or after.
    pub dies_at: Option<(usize, bool)>,
    /// A guest whose start was under way when its host was cordoned: there once the first plan is made.
    pub newcomer: Option<(VmName, HostName)>,
    /// Ticks in which nothing that is sent arrives.
    pub blackout: std::ops::Range<u64>,
    /// What is seen on hosts is told as late as it is waited for.
    pub looks_slowly: bool,
}

struct Died;

impl Driver {
    pub fn new(world: World, weather: Weather, began: Began) -> Self {
        Self {
            cordoned_before: world.cordoned.keys().cloned().collect(),
            world,
            weather,
            run: Run::new(began.clone()),
            journal: vec![Entry::Began(began)],
            messages: Vec::new(),
            tick: 0,
            cancel: None,
            deaths: 0,
            dies_at: None,
            newcomer: None,
            blackout: 0..0,
            looks_slowly: false,
        }
    }

    fn now(&self) -> Now {
        let elapsed = TICK * u32::try_from(self.tick).unwrap();
        Now {
            wall: UnixMillis(self.tick * 100),
            elapsed,
        }
    }

    pub fn now_seconds(&self) -> u64 {
        self.now().elapsed.as_secs()
    }

    /// Runs until the run has ended.
    pub fn drive(&mut self, at_most: u64) {
        while self.run.result().is_none() {
            assert!(
                self.tick < at_most,
                "no end: {:#?}\n{:?}",
                self.run,
                self.run.asks()
            );
            self.tick += 1;
            self.world.tick();
            self.deliver();
            if self.world.dice.chance(self.weather.dies) || self.step().is_err() {
                self.die();
            }
        }
        self.world.is_over = true;
        // What is on its way arrives after the end.
        for _ in 0..(4 * PATIENCE) {
            self.tick += 1;
            self.world.tick();
            self.deliver();
        }
    }

    /// Agents get what was sent to them, whoever sent it.
    fn deliver(&mut self) {
        let request = self.run.request();
        for message in &mut self.messages {
            if message.arrives == self.tick {
                message.answer = Some(self.world.answer(&message.ask, &request));
            }
        }
        let tick = self.tick;
        self.messages
            .retain(|message| message.is_awaited || message.arrives > tick);
    }

    fn step(&mut self) -> Result<(), Died> {
        for (ask, answer) in self.answers() {
            let entries = self.run.handle(&ask, answer, self.now());
            for entry in entries {
                self.write(entry)?;
            }
        }
        if let Some((at, cancel)) = self.cancel.clone()
            && self.tick >= at
            && self.run.result().is_none()
        {
            self.write(Entry::CancelAsked(cancel))?;
            self.cancel = None;
        }
        loop {
            let fresh = MigrationId(Uuid::from_u128(self.world.dice.bits()));
            let Some(entry) = self.run.decide(self.now(), fresh) else {
                break;
            };
            let entry = self.kept_back(entry);
            self.write(entry)?;
        }
        self.send();
        Ok(())
    }

    /// The entry, or that the move which it orders does not begin.
    fn kept_back(&mut self, entry: Entry) -> Entry {
        match entry {
            Entry::Ordered { number, at, .. }
                if self.world.dice.chance(self.weather.keeps_back) =>
            {
                let why = "it was pinned".to_owned().into();
                Entry::KeptBack { number, why, at }
            }
            entry => entry,
        }
    }

    fn write(&mut self, entry: Entry) -> Result<(), Died> {
        let number = self.journal.len();
        let meant = |after| self.dies_at == Some((number, after));
        if meant(false) || self.world.dice.chance(self.weather.dies) {
            return Err(Died);
        }
        let text = serde_json::to_string(&entry).unwrap();
        assert_eq!(serde_json::from_str::<Entry>(&text).unwrap(), entry);
        self.journal.push(entry.clone());
        if meant(true) || self.world.dice.chance(self.weather.dies) {
            return Err(Died);
        }
        self.run.apply(&entry).unwrap();
        if let Entry::Ordered { number, .. } = &entry {
            let number = *number;
            self.earlier_waves_have_arrived(number);
        }
        if let Entry::Parking(order) = &entry {
            self.nothing_else_is_left_to_move(&order.host);
        }
        if let Entry::Round { .. } = entry
            && let Some((vm, host)) = self.newcomer.take()
        {
            self.world.guests.insert(vm, (host, true));
        }
        Ok(())
    }

    fn die(&mut self) {
        self.deaths += 1;
        self.dies_at = None;
        self.run = Run::replay(&self.journal).unwrap();
        for message in &mut self.messages {
            message.is_awaited = false;
        }
    }

    /// Answers that have come, and silence in the place of those that have not.
    fn answers(&mut self) -> Vec<(Ask, Answer)> {
        let tick = self.tick;
        let mut done = Vec::new();
        self.messages.retain(|message| {
            if !message.is_awaited {
                return true;
            }
            let is_back = message.answered.is_some_and(|at| at <= tick);
            if is_back && let Some(answer) = &message.answer {
                done.push((message.ask.clone(), answer.clone()));
                return false;
            }
            let gave_up = message.sent + PATIENCE < tick;
            if gave_up {
                let why = drover_plan::Text::from("no answer".to_owned());
                done.push((message.ask.clone(), Answer::Silence { why }));
            }
            !gave_up
        });
        done
    }

    fn send(&mut self) {
        let awaited = self.messages.iter().filter(|m| m.is_awaited);
        let open: BTreeSet<Ask> = awaited.map(|message| message.ask.clone()).collect();
        for ask in self.run.asks() {
            // A cordon on its way must not arrive after it was lifted.
            let is_after = |open: &Ask| match (open, &ask) {
                (Ask::Cordon { host }, Ask::Lift { host: lifted }) => host == lifted,
                _ => false,
            };
            if open.contains(&ask) || open.iter().any(is_after) {
                continue;
            }
            if let Ask::Order { migration, .. } = &ask {
                self.is_written(*migration);
            }
            if let Ask::Park { park, .. } = &ask {
                let is_it =
                    |entry: &Entry| matches!(entry, Entry::Parking(order) if order.park == *park);
                assert!(
                    self.journal.iter().any(is_it),
                    "ordered before it was written down"
                );
            }
            if let Ask::Park { begin: true, .. } | Ask::Unpark { begin: true, .. } = &ask {
                let cancelled = |entry: &Entry| matches!(entry, Entry::CancelAsked(_));
                let is_cancelled = self.journal.iter().any(cancelled);
                assert!(!is_cancelled, "begins after the cancel: {ask:?}");
            }
            let is_dark = self.blackout.contains(&self.tick);
            let dice = &mut self.world.dice;
            let (there, back) = match ask {
                Ask::Census { .. } if self.looks_slowly => (1, PATIENCE - 1),
                _ => (1 + dice.below(4), 1 + dice.below(3)),
            };
            let lost = [
                dice.chance(self.weather.loses),
                dice.chance(self.weather.loses),
            ];
            let is_lost = lost[0] || is_dark;
            let arrives = if is_lost { u64::MAX } else { self.tick + there };
            self.messages.push(Message {
                ask,
                arrives,
                answered: (!lost[1]).then_some(self.tick + there + back),
                answer: None,
                is_awaited: true,
                sent: self.tick,
            });
        }
    }

    fn nothing_else_is_left_to_move(&self, host: &HostName) {
        let mut last = std::collections::BTreeMap::new();
        for record in self.run.moves().iter().filter(|r| r.planned.from == *host) {
            last.insert(&record.planned.vm, record);
        }
        for record in last.values() {
            let arrived = matches!(
                record.state,
                MoveState::Ended {
                    outcome: Outcome::Moved { .. },
                    ..
                }
            );
            assert!(arrived, "parked beside {record:?}");
        }
        for guest in self.world.guests_on(&[host.clone()].into()) {
            let is_bound = self.world.parking.bound.contains(&guest.vm);
            assert!(is_bound, "parked for nothing beside {guest:?}");
        }
        let parks = self.run.parks().iter();
        for park in parks.filter(|park| park.order.host == *host) {
            let ended = park.ended.as_ref().map(|(outcome, _)| outcome);
            let goes = matches!(ended, None | Some(ParkOutcome::Parked));
            assert!(goes, "parked for nothing beside {park:?}");
        }
    }

    fn earlier_waves_have_arrived(&self, number: u32) {
        let moves = self.run.moves();
        let begun = moves.iter().find(|record| record.number == number).unwrap();
        for record in moves.iter().filter(|record| record.round == begun.round) {
            let arrived = matches!(
                record.state,
                MoveState::Ended {
                    outcome: Outcome::Moved { .. },
                    ..
                }
            );
            assert!(
                arrived || record.planned.wave >= begun.planned.wave,
                "{moves:#?}"
            );
        }
    }

    fn is_written(&self, id: MigrationId) {
        let mut entries = self.journal.iter();
        let is_it =
            |entry: &Entry| matches!(entry, Entry::Ordered { migration, .. } if *migration == id);
        assert!(entries.any(is_it), "ordered before it was written down");
    }
}
