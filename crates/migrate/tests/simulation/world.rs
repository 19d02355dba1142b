//! Two hosts, two agents, two hypervisors, two disks and a network, from a seed.
//!
//! Everything that takes time is an event at a random time. An agent that is killed loses its
//! machine, its session and every answer on the way; its disk and its hypervisor stay.

use std::collections::BTreeMap;
use std::time::Duration;

use drover_migrate::destination::{self, Destination};
use drover_migrate::source::{self, Source};
use drover_migrate::{
    CancelledBy, DestinationRecord, DestinationStep, GuestSeen, HandOffAnswer, Migration,
    MigrationSeen, Output, Reason, SourceRecord, SourceStep, Time, Verdict,
};
use drover_types::{MigrationId, Path, PathEnd, PathId};

use crate::qemu::Qemu;

/// What happens at a time.
#[derive(Debug, Clone)]
pub enum Event {
    /// The agent looks whether a deadline has passed.
    WakeSource {
        life: u32,
    },
    WakeDestination {
        life: u32,
    },
    /// An answer reaches the agent that asked, if it still lives its same life.
    ToSource {
        life: u32,
        input: source::Input,
    },
    ToDestination {
        life: u32,
        input: destination::Input,
    },
    /// An action takes effect.
    SourceDoes {
        life: u32,
        action: source::Action,
    },
    DestinationDoes {
        life: u32,
        action: destination::Action,
    },
    /// A request of the source's agent arrives at the destination's.
    Request {
        life: u32,
        action: source::Action,
    },
    /// The destination's agent answers the source's.
    Answer {
        life: u32,
        input: source::Input,
    },
    /// The destination's agent asks for the verdict.
    AskVerdict {
        life: u32,
    },
    /// The guest's state moves on: 0 memory, 1 stopped, 2 all of it is at the destination.
    Transfer {
        step: u8,
    },
    /// The incoming hypervisor has loaded everything.
    Loaded,
    /// The source's hypervisor learns that it was loaded.
    Told,
    /// The source's hypervisor goes from finish-migrate to postmigrate.
    AfterMigrate,
    /// A hypervisor notices that its sockets are closed.
    SourceCut,
    DestinationCut,
    /// The source's hypervisor follows a cancel or a yank.
    GivesUp {
        cancelled: bool,
    },
    Fault(Fault),
    /// Whichever agent is not there is started.
    StartDeadAgents,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    KillSourceAgent,
    KillDestinationAgent,
    KillSourceQemu,
    KillDestinationQemu,
    LoseSourceHost,
    LoseDestinationHost,
    CutPaths,
    FillSourceDisk,
    FillDestinationDisk,
    FailMigration,
    Cancel,
    // What heals.
    StartSourceAgent,
    StartDestinationAgent,
    JoinPaths,
    FreeDisks,
}

pub struct World {
    pub now: Time,
    log: Vec<(Time, Event)>,
    seed: u64,
    events: BTreeMap<(Time, u64), Event>,
    number: u64,
    pub steps: usize,
    /// Reached by [`World::steps`], this goes wrong.
    pub fault_at: Option<(usize, Fault, Option<Duration>)>,

    pub source: Option<Source>,
    pub destination: Option<Destination>,
    source_life: u32,
    destination_life: u32,
    source_host: bool,
    destination_host: bool,
    pub source_disk: Option<SourceRecord>,
    pub destination_disk: Option<DestinationRecord>,
    source_full: bool,
    destination_full: bool,
    pub source_qemu: Qemu,
    pub destination_qemu: Option<Qemu>,
    pub source_definition: bool,
    pub destination_definition: bool,
    control: bool,
    source_session: bool,
    destination_session: bool,
    observing_source: bool,
    observing_destination: bool,
    source_wake: Option<(u32, Time)>,
    destination_wake: Option<(u32, Time)>,
    waits_for_ready: Option<u32>,
    waits_for_listening: Option<u32>,
    waits_for_abandoned: Option<u32>,
}

fn gone() -> Reason {
    Reason::from("killed")
}

pub fn migration() -> Migration {
    Migration {
        id: MigrationId::from_bytes([7; 16]),
        vm: "web1".parse().unwrap(),
        source: "alpha".parse().unwrap(),
        destination: "beta".parse().unwrap(),
    }
}

fn path() -> Path {
    let address = std::net::Ipv4Addr::new(10, 0, 0, 1).into();
    let end = PathEnd {
        interface: "eth0".into(),
        address,
    };
    Path {
        id: PathId(0),
        source: end.clone(),
        destination: end,
        rate: None,
        mtu: 1500,
    }
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut world = Self {
            now: Duration::ZERO,
            log: Vec::new(),
            seed,
            events: BTreeMap::new(),
            number: 0,
            steps: 0,
            fault_at: None,
            source: None,
            destination: None,
            source_life: 1,
            destination_life: 1,
            source_host: true,
            destination_host: true,
            source_disk: None,
            destination_disk: None,
            source_full: false,
            destination_full: false,
            source_qemu: Qemu::running(false),
            destination_qemu: None,
            source_definition: true,
            destination_definition: false,
            control: true,
            source_session: false,
            destination_session: false,
            observing_source: false,
            observing_destination: false,
            source_wake: None,
            destination_wake: None,
            waits_for_ready: None,
            waits_for_listening: None,
            waits_for_abandoned: None,
        };
        if world.chance(50) {
            world.source_qemu = Qemu::running(true);
        }
        world.source = Some(Source::new(migration(), Duration::ZERO));
        world.drive_source();
        world
    }

    /// What has happened, a line each; woken agents that did nothing are left out.
    pub fn story(&self) -> String {
        let wakes = |event: &Event| {
            matches!(
                event,
                Event::WakeSource { .. } | Event::WakeDestination { .. }
            )
        };
        let told = self.log.iter().filter(|(_, event)| !wakes(event));
        told.fold(String::new(), |story, (time, event)| {
            format!("{story}\n{time:?} {event:?}")
        })
    }

    // Randomness (splitmix64) and time.

    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random() % 100 < percent
    }

    /// Mostly some milliseconds, now and then much longer.
    fn soon(&mut self) -> Duration {
        let most = match self.random() % 10 {
            0 => 3000,
            1..4 => 300,
            _ => 20,
        };
        Duration::from_millis(1 + self.random() % most)
    }

    pub fn at(&mut self, time: Time, event: Event) {
        self.number += 1;
        self.events.insert((time, self.number), event);
    }

    fn later(&mut self, event: Event) {
        let time = self.now + self.soon();
        self.at(time, event);
    }

    /// Runs until nothing is left to happen or until `until`; `check` sees every state.
    pub fn run(&mut self, until: Time, mut check: impl FnMut(&Self)) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until {
                break;
            }
            self.now = time;
            self.log.push((time, event.clone()));
            self.happen(event);
            self.steps += 1;
            if let Some((step, fault, heals)) = self.fault_at
                && step == self.steps
            {
                self.strike(fault, heals);
            }
            check(self);
        }
    }

    fn strike(&mut self, fault: Fault, heals: Option<Duration>) {
        self.log.push((self.now, Event::Fault(fault)));
        self.fault(fault);
        if let Some(after) = heals {
            for healing in healing(fault) {
                self.at(self.now + after, Event::Fault(*healing));
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::WakeSource { life } if life == self.source_life => self.drive_source(),
            Event::WakeDestination { life } if life == self.destination_life => {
                self.drive_destination();
            }
            Event::ToSource { life, input } if life == self.source_life => self.tell_source(input),
            Event::ToDestination { life, input } if life == self.destination_life => {
                self.tell_destination(input);
            }
            Event::SourceDoes { life, action } if life == self.source_life => {
                self.source_does(action);
            }
            Event::DestinationDoes { life, action } if life == self.destination_life => {
                self.destination_does(action);
            }
            Event::Request { life, action } => self.request(life, &action),
            Event::Answer { life, input } => {
                let arrives = self.control;
                let input = if arrives {
                    input
                } else {
                    unreachable_answer(&input)
                };
                self.later(Event::ToSource { life, input });
            }
            Event::AskVerdict { life } => self.ask_verdict(life),
            Event::Transfer { step } => self.transfer(step),
            Event::Loaded => self.loaded(),
            Event::Told => self.told(),
            Event::AfterMigrate => self.source_qemu.after_migrate(),
            Event::SourceCut => self.gives_up(false),
            Event::GivesUp { cancelled } => self.gives_up(cancelled),
            Event::DestinationCut => self.destination_cut(),
            Event::Fault(fault) => self.fault(fault),
            Event::StartDeadAgents => {
                if self.source_life == 0 {
                    self.start_source_agent();
                }
                if self.destination_life == 0 {
                    self.start_destination_agent();
                }
            }
            _ => {}
        }
    }

    // The shells.

    fn drive_source(&mut self) {
        let life = self.source_life;
        loop {
            let Some(source) = &mut self.source else {
                return;
            };
            match source.poll(self.now) {
                Output::Wait(until) => {
                    if let Some(until) = until
                        && self.source_wake != Some((life, until))
                    {
                        self.source_wake = Some((life, until));
                        self.at(until, Event::WakeSource { life });
                    }
                    return;
                }
                Output::Journal(record) => {
                    let input = if self.source_full {
                        source::Input::JournalFailed {
                            reason: Reason::from("disk full"),
                        }
                    } else {
                        self.source_disk = Some(record);
                        source::Input::Journaled
                    };
                    let result = source.handle(self.now, input);
                    assert_eq!(result, Ok(()));
                }
                Output::Do(action) => self.later_source(action),
            }
        }
    }

    /// Effects of one agent keep their order: each at the time of the one before, or later.
    fn later_source(&mut self, action: source::Action) {
        let life = self.source_life;
        let last = self.events.iter().rev().find_map(|((time, _), event)| {
            matches!(event, Event::SourceDoes { life: of, .. } if *of == life).then_some(*time)
        });
        let time = (self.now + self.soon()).max(last.unwrap_or_default());
        self.at(time, Event::SourceDoes { life, action });
    }

    fn later_destination(&mut self, action: destination::Action) {
        let life = self.destination_life;
        let last = self.events.iter().rev().find_map(|((time, _), event)| {
            matches!(event, Event::DestinationDoes { life: of, .. } if *of == life).then_some(*time)
        });
        let time = (self.now + self.soon()).max(last.unwrap_or_default());
        self.at(time, Event::DestinationDoes { life, action });
    }

    fn tell_source(&mut self, input: source::Input) {
        if let source::Input::Hypervisor(_) = input {
            // A look is at what is now, not at what was when it was sent off.
            if !self.source_qemu.alive {
                return;
            }
        }
        let Some(source) = &mut self.source else {
            return;
        };
        if matches!(input, source::Input::MigrationStarted) {
            self.observing_source = true;
        }
        let _ = source.handle(self.now, input);
        self.drive_source();
    }

    fn tell_destination(&mut self, input: destination::Input) {
        let Some(destination) = &mut self.destination else {
            return;
        };
        if matches!(input, destination::Input::Listening) {
            self.observing_destination = true;
        }
        let _ = destination.handle(self.now, input);
        self.drive_destination();
        self.answer_waiting();
    }

    fn drive_destination(&mut self) {
        let life = self.destination_life;
        loop {
            let Some(destination) = &mut self.destination else {
                return;
            };
            match destination.poll(self.now) {
                Output::Wait(until) => {
                    if let Some(until) = until
                        && self.destination_wake != Some((life, until))
                    {
                        self.destination_wake = Some((life, until));
                        self.at(until, Event::WakeDestination { life });
                    }
                    break;
                }
                Output::Journal(record) => {
                    let input = if self.destination_full {
                        destination::Input::JournalFailed {
                            reason: Reason::from("disk full"),
                        }
                    } else {
                        self.destination_disk = Some(record);
                        destination::Input::Journaled
                    };
                    let result = destination.handle(self.now, input);
                    assert_eq!(result, Ok(()));
                }
                Output::Do(action) => self.later_destination(action),
            }
        }
        self.answer_waiting();
    }

    fn answer(&mut self, life: u32, input: source::Input) {
        self.later(Event::Answer { life, input });
    }

    fn source_hears(&mut self, input: source::Input) {
        let life = self.source_life;
        self.later(Event::ToSource { life, input });
    }

    fn destination_hears(&mut self, input: destination::Input) {
        let life = self.destination_life;
        self.later(Event::ToDestination { life, input });
    }

    fn source_does(&mut self, action: source::Action) {
        use source::{Action, Input};
        let life = self.source_life;
        match action {
            Action::PrepareDestination
            | Action::TellDestinationToListen
            | Action::TellDestinationToRun
            | Action::AbandonDestination => self.later(Event::Request { life, action }),
            Action::OpenLanes { .. } => {
                if self.control && self.destination.is_some() {
                    self.source_session = true;
                    self.destination_session = true;
                    self.source_hears(Input::LanesUp);
                } else {
                    self.source_hears(Input::SessionFailed { reason: gone() });
                }
            }
            Action::StartMigration { .. } => self.start_migration(),
            // It takes a moment, in which the migration may complete.
            Action::CancelMigration => self.later(Event::GivesUp { cancelled: true }),
            Action::Yank => self.later(Event::GivesUp { cancelled: false }),
            Action::Observe => self.look_at_source(),
            Action::CloseSession => self.close_source_session(),
            Action::KeepGuest => self.source_qemu.cont(),
            Action::QuitSource => {
                self.source_qemu.kill();
                self.source_hears(Input::HypervisorGone { reason: gone() });
            }
            Action::ForgetGuest => {
                self.source_definition = false;
                self.source_hears(Input::GuestForgotten);
            }
            Action::Finish(_) => self.observing_source = false,
        }
    }

    fn start_migration(&mut self) {
        if !self.source_qemu.alive {
            return;
        }
        if self.source_session && self.chance(97) {
            self.source_qemu.migration = MigrationSeen::Active;
            self.source_hears(source::Input::MigrationStarted);
            self.later(Event::Transfer { step: 0 });
        } else {
            let reason = Reason::from("refused");
            self.source_hears(source::Input::MigrationRefused { reason });
        }
    }

    fn look_at_source(&mut self) {
        let input = if self.source_qemu.alive {
            source::Input::Hypervisor(self.source_qemu.observe())
        } else {
            source::Input::HypervisorGone { reason: gone() }
        };
        self.source_hears(input);
    }

    fn look_at_destination(&mut self, settled: bool) {
        let input = match &self.destination_qemu {
            Some(qemu) if qemu.alive && settled => destination::Input::Settled(qemu.observe()),
            Some(qemu) if qemu.alive => destination::Input::Hypervisor(qemu.observe()),
            _ => destination::Input::HypervisorGone { reason: gone() },
        };
        self.destination_hears(input);
    }

    fn destination_does(&mut self, action: destination::Action) {
        use destination::{Action, Input};
        match action {
            Action::StartHypervisor => {
                self.destination_qemu = Some(Qemu::incoming());
                self.destination_hears(Input::HypervisorStarted);
            }
            Action::Listen => {
                if self
                    .destination_qemu
                    .as_ref()
                    .is_some_and(|qemu| qemu.alive)
                {
                    self.destination_hears(Input::Listening);
                }
            }
            Action::Observe => self.look_at_destination(false),
            Action::Settle => {
                self.close_destination_session();
                self.look_at_destination(true);
            }
            Action::AskVerdict => {
                let life = self.destination_life;
                self.later(Event::AskVerdict { life });
            }
            Action::ResumeGuest => {
                let qemu = self.destination_qemu.as_mut().filter(|qemu| qemu.alive);
                if let Some(qemu) = qemu {
                    qemu.cont();
                    self.destination_hears(Input::GuestResumed);
                }
            }
            Action::AdoptGuest => {
                self.destination_definition = true;
                self.destination_hears(Input::GuestAdopted);
            }
            Action::KillHypervisor => {
                if let Some(qemu) = &mut self.destination_qemu {
                    assert!(!qemu.runs_its_guest(), "a running guest is killed");
                    qemu.kill();
                }
                self.destination_hears(Input::HypervisorGone { reason: gone() });
            }
            Action::CloseSession => self.close_destination_session(),
            Action::RemoveRuntime => self.destination_definition = false,
            Action::Finish(_) => self.observing_destination = false,
        }
    }

    // The agents' requests to each other.

    fn request(&mut self, life: u32, action: &source::Action) {
        use source::{Action, Input};
        if !self.control || !self.destination_host || self.destination_life == 0 {
            return self.answer_locally(life, unreachable(action));
        }
        match action {
            Action::PrepareDestination => {
                // An agent that heard of this migration before takes no second one in.
                if self.destination.is_some() || self.destination_disk.is_some() {
                    let reason = Reason::from("known already");
                    return self.answer(life, Input::DestinationRefused { reason });
                }
                self.destination = Some(Destination::new(migration(), self.now));
                self.waits_for_ready = Some(life);
                self.drive_destination();
            }
            Action::TellDestinationToListen => {
                self.waits_for_listening = Some(life);
                self.tell_destination(destination::Input::ListenRequested);
            }
            Action::TellDestinationToRun => {
                self.tell_destination(destination::Input::RunRequested);
                let answer = self.hand_off_answer();
                self.answer(life, Input::HandOffAnswered(answer));
            }
            Action::AbandonDestination => {
                self.waits_for_abandoned = Some(life);
                self.tell_destination(destination::Input::AbandonRequested);
                self.answer_waiting();
            }
            _ => {}
        }
    }

    fn hand_off_answer(&self) -> HandOffAnswer {
        let on_disk = self.destination_disk.as_ref().map(|record| &record.step);
        match (&self.destination, on_disk) {
            (Some(destination), _) => destination.hand_off_answer(),
            (None, Some(DestinationStep::Running)) => HandOffAnswer::Running,
            (None, Some(DestinationStep::Abandoned { .. } | DestinationStep::Lost { .. })) => {
                HandOffAnswer::Gone { reason: gone() }
            }
            (None, _) => HandOffAnswer::Pending {
                reason: Reason::from("not known here"),
            },
        }
    }

    fn answer_locally(&mut self, life: u32, input: source::Input) {
        self.later(Event::ToSource { life, input });
    }

    /// Answers the source's requests that waited for a phase.
    fn answer_waiting(&mut self) {
        use destination::Phase;
        use source::Input;
        let phase = self
            .destination
            .as_ref()
            .map(|machine| machine.phase().clone());
        let given_up = matches!(phase, Some(Phase::Abandoning { .. } | Phase::Ended(_)));
        if let Some(life) = self.waits_for_ready {
            if phase == Some(Phase::Prepared) {
                self.waits_for_ready = None;
                self.answer(
                    life,
                    Input::DestinationReady {
                        paths: vec![path()],
                        channels: 2,
                    },
                );
            } else if given_up {
                self.waits_for_ready = None;
                self.answer(life, Input::DestinationRefused { reason: gone() });
            }
        }
        if let Some(life) = self.waits_for_listening {
            if matches!(phase, Some(Phase::Receiving { .. })) {
                self.waits_for_listening = None;
                self.answer(life, Input::DestinationListens);
            } else if given_up {
                self.waits_for_listening = None;
                self.answer(life, Input::DestinationRefused { reason: gone() });
            }
        }
        if let Some(life) = self.waits_for_abandoned
            && (phase.is_none() || matches!(phase, Some(Phase::Ended(_))))
        {
            self.waits_for_abandoned = None;
            self.answer(life, Input::DestinationAbandoned);
        }
    }

    fn ask_verdict(&mut self, life: u32) {
        use destination::Input;
        let reachable = self.control && self.source_host && self.source_life != 0;
        let verdict = match (&self.source, &self.source_disk) {
            (Some(source), _) => Some(source.verdict()),
            (None, Some(record)) => Some(record.verdict()),
            (None, None) => None,
        };
        let input = match verdict.filter(|_| reachable) {
            Some(verdict) => Input::VerdictAnswered(verdict),
            None => Input::VerdictUnreachable { reason: gone() },
        };
        self.later(Event::ToDestination { life, input });
    }

    // The guest's state on its way.

    fn connected(&self) -> bool {
        self.source_session && self.destination_session && self.control
    }

    fn transfer(&mut self, step: u8) {
        let goes_on = self.source_qemu.migrates() && self.connected();
        let Some(incoming) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        if !goes_on {
            return;
        }
        match step {
            0 => incoming.migration = MigrationSeen::Active,
            1 => self.source_qemu.guest = GuestSeen::FinishMigrate,
            _ => {
                incoming.has_everything = true;
                return self.later(Event::Loaded);
            }
        }
        self.look_at_both();
        self.later(Event::Transfer { step: step + 1 });
    }

    fn loaded(&mut self) {
        let session = self.destination_session;
        let Some(qemu) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        if !qemu.has_everything || qemu.migration != MigrationSeen::Active {
            return;
        }
        qemu.migration = MigrationSeen::Completed;
        qemu.guest = GuestSeen::Paused;
        if session {
            self.later(Event::Told);
        }
        self.look_at_both();
    }

    /// The word went off while the session lived; it may arrive even if it has died since.
    fn told(&mut self) {
        let arrives = self.source_session && (self.connected() || self.chance(50));
        if arrives && self.source_qemu.migrates() {
            self.source_qemu.migration = MigrationSeen::Completed;
            self.source_qemu.guest = GuestSeen::FinishMigrate;
            self.later(Event::AfterMigrate);
            self.look_at_both();
        }
    }

    /// The hypervisors' own events make their agents look.
    fn look_at_both(&mut self) {
        if self.observing_source && self.source_life != 0 {
            self.look_at_source();
        }
        if self.observing_destination && self.destination_life != 0 {
            self.look_at_destination(false);
        }
    }

    fn gives_up(&mut self, cancelled: bool) {
        self.source_qemu.give_up(cancelled);
        self.look_at_both();
    }

    fn close_source_session(&mut self) {
        if std::mem::replace(&mut self.source_session, false) {
            self.later(Event::SourceCut);
            self.session_failed_at_destination();
        }
    }

    fn close_destination_session(&mut self) {
        if std::mem::replace(&mut self.destination_session, false) {
            self.later(Event::DestinationCut);
            self.session_failed_at_source();
        }
    }

    fn session_failed_at_source(&mut self) {
        if self.source_session && self.source_life != 0 {
            let life = self.source_life;
            let time = self.now + self.soon() + self.soon();
            let input = source::Input::SessionFailed { reason: gone() };
            self.at(time, Event::ToSource { life, input });
        }
    }

    fn session_failed_at_destination(&mut self) {
        if self.destination_session && self.destination_life != 0 {
            let life = self.destination_life;
            let time = self.now + self.soon() + self.soon();
            let input = destination::Input::SessionFailed { reason: gone() };
            self.at(time, Event::ToDestination { life, input });
        }
    }

    fn destination_cut(&mut self) {
        let Some(qemu) = self.destination_qemu.as_mut().filter(|qemu| qemu.alive) else {
            return;
        };
        qemu.cut = true;
        if !qemu.has_everything && qemu.guest == GuestSeen::InMigrate {
            qemu.kill();
            self.destination_hears(destination::Input::HypervisorGone { reason: gone() });
        }
    }

    // What goes wrong, and what heals.

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::KillSourceAgent => self.kill_source_agent(),
            Fault::KillDestinationAgent => self.kill_destination_agent(),
            Fault::KillSourceQemu => {
                self.source_qemu.kill();
                self.source_hears(source::Input::HypervisorGone { reason: gone() });
                self.later(Event::DestinationCut);
            }
            Fault::KillDestinationQemu => {
                if let Some(qemu) = &mut self.destination_qemu {
                    qemu.kill();
                    self.destination_hears(destination::Input::HypervisorGone { reason: gone() });
                    self.later(Event::SourceCut);
                }
            }
            Fault::LoseSourceHost => {
                self.source_qemu.kill();
                self.source_host = false;
                self.kill_source_agent();
            }
            Fault::LoseDestinationHost => {
                if let Some(qemu) = &mut self.destination_qemu {
                    qemu.kill();
                }
                self.destination_host = false;
                self.kill_destination_agent();
            }
            Fault::CutPaths => {
                self.control = false;
                self.session_failed_at_source();
                self.session_failed_at_destination();
            }
            Fault::FillSourceDisk => self.source_full = true,
            Fault::FillDestinationDisk => self.destination_full = true,
            Fault::FailMigration => self.gives_up(false),
            Fault::Cancel => {
                let by = CancelledBy::Operator;
                self.tell_source(source::Input::CancelRequested { by });
            }
            Fault::StartSourceAgent => self.start_source_agent(),
            Fault::StartDestinationAgent => self.start_destination_agent(),
            Fault::JoinPaths => self.control = true,
            Fault::FreeDisks => {
                self.source_full = false;
                self.destination_full = false;
            }
        }
    }

    fn kill_source_agent(&mut self) {
        self.source = None;
        self.source_life = 0;
        self.observing_source = false;
        self.close_source_session();
    }

    fn kill_destination_agent(&mut self) {
        self.destination = None;
        self.destination_life = 0;
        self.observing_destination = false;
        self.close_destination_session();
        // Requests that waited here end with the connection.
        let waiting = [
            (
                self.waits_for_ready.take(),
                source::Action::PrepareDestination,
            ),
            (
                self.waits_for_listening.take(),
                source::Action::TellDestinationToListen,
            ),
            (
                self.waits_for_abandoned.take(),
                source::Action::AbandonDestination,
            ),
        ];
        for (life, action) in waiting {
            if let Some(life) = life {
                self.answer_locally(life, unreachable(&action));
            }
        }
    }

    fn start_source_agent(&mut self) {
        self.source_host = true;
        self.source_life = u32::try_from(self.steps).unwrap_or(1).max(2);
        if let Some(record) = self.source_disk.clone()
            && !matches!(record.step, SourceStep::Finished { .. })
        {
            self.observing_source = true;
            self.source = Some(Source::recover(record, self.now));
            self.drive_source();
        }
    }

    fn start_destination_agent(&mut self) {
        self.destination_host = true;
        self.destination_life = u32::try_from(self.steps).unwrap_or(1).max(2);
        if let Some(record) = self.destination_disk.clone()
            && record.step == DestinationStep::Incoming
        {
            self.observing_destination = true;
            self.destination = Some(Destination::recover(record, self.now));
            self.drive_destination();
        }
    }

    pub fn decided_for_destination(&self) -> bool {
        self.source_disk
            .as_ref()
            .is_some_and(|record| record.verdict() == Verdict::HandedOff)
    }
}

/// What undoes a fault, where something does.
fn healing(fault: Fault) -> &'static [Fault] {
    match fault {
        Fault::KillSourceAgent | Fault::LoseSourceHost => &[Fault::StartSourceAgent],
        Fault::KillDestinationAgent | Fault::LoseDestinationHost => &[Fault::StartDestinationAgent],
        Fault::CutPaths => &[Fault::JoinPaths],
        Fault::FillSourceDisk | Fault::FillDestinationDisk => &[Fault::FreeDisks],
        _ => &[],
    }
}

/// What the asking agent makes of a request that did not get through.
fn unreachable(action: &source::Action) -> source::Input {
    use source::{Action, Input};
    let reason = Reason::from("no route");
    match action {
        Action::TellDestinationToRun => Input::HandOffUnreachable { reason },
        Action::AbandonDestination => Input::AbandonUnreachable { reason },
        _ => Input::DestinationUnreachable { reason, sent: true },
    }
}

/// What the asking agent makes of an answer that did not get through.
fn unreachable_answer(input: &source::Input) -> source::Input {
    use source::{Action, Input};
    match input {
        Input::HandOffAnswered(_) => unreachable(&Action::TellDestinationToRun),
        Input::DestinationAbandoned => unreachable(&Action::AbandonDestination),
        _ => unreachable(&Action::PrepareDestination),
    }
}
