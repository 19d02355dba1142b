//! Two hosts, two agents, two hypervisors, two disks and a network, from a seed.
//!
//! Everything that takes time is an event at a random time. An agent that is killed loses its
//! machine and every answer on the way; its disk and its hypervisor stay, and its relay for
//! [`PATIENCE`].

use std::collections::BTreeMap;
use std::time::Duration;

use drover_migrate::destination::{self, Destination};
use drover_migrate::source::{self, Source};
use drover_migrate::{DestinationRecord, Migration, MigrationSeen, Reason, SourceRecord, Time};
use drover_types::{MigrationId, Path, PathEnd, PathId};

use crate::event::{Event, Fault};
use crate::faults::healing;
use crate::qemu::Qemu;
use crate::questions::Call;

pub struct World {
    pub now: Time,
    pub(crate) log: Vec<(Time, Event)>,
    pub(crate) seed: u64,
    pub(crate) events: BTreeMap<(Time, u64), Event>,
    pub(crate) number: u64,
    pub steps: usize,
    /// Reached by [`World::steps`], this goes wrong.
    pub fault_at: Option<(usize, Fault, Option<Duration>)>,

    pub source: Option<Source>,
    pub destination: Option<Destination>,
    pub(crate) source_life: u32,
    pub(crate) destination_life: u32,
    pub(crate) source_deaths: u32,
    pub(crate) destination_deaths: u32,
    pub(crate) source_host: bool,
    pub(crate) destination_host: bool,
    pub source_disk: Option<SourceRecord>,
    pub destination_disk: Option<DestinationRecord>,
    pub(crate) source_hangs: bool,
    pub(crate) destination_hangs: bool,
    /// What waits for hypervisors that hang; one monitor answers in the order of the questions.
    pub(crate) held: Vec<Event>,
    pub(crate) source_full: bool,
    pub(crate) destination_full: bool,
    pub source_qemu: Qemu,
    pub destination_qemu: Option<Qemu>,
    pub source_definition: bool,
    pub destination_definition: bool,
    /// What was decided was told to the other host, by the journal.
    pub source_told: bool,
    pub destination_told: bool,
    /// An operator's word was taken.
    pub decided: bool,
    pub(crate) control: bool,
    pub(crate) source_session: bool,
    pub(crate) destination_session: bool,
    /// Counts the sessions.
    pub(crate) session: u32,
    /// The guest's deadline comes, and postcopy is what is done then.
    pub postcopy: bool,
    /// A session broke with the guest's devices in it, after its hypervisor let go of it.
    pub devices_lost: bool,
    /// Its guest was said to be cut off while the destination's hypervisor hung, and not for want of a page.
    pub cut_off_unseen: bool,
    /// How often a broken postcopy went on.
    pub resumed: u32,
    /// Hypervisors that go on over another session may lose it before both have agreed on what is missing.
    pub handshakes_break: bool,
    pub handshakes_broken: u32,
    /// With its agent the source's journal goes; what the guest's own record says is left.
    pub loses_journal: bool,
    pub journals_lost: u32,
    /// The session over which they are about to go on.
    pub(crate) connecting: Option<u32>,
    /// How often such a session was replaced, with nothing wrong with it.
    pub replaced_in_vain: u32,
    /// Counts the orders to run the guest; which of them is waited for.
    pub(crate) resumes: u32,
    pub(crate) open_resume: Option<u32>,
    /// How often a hypervisor hung on a page as it was told to run its guest.
    pub hung: u32,
    /// An operator ended a hypervisor that hung.
    pub ended_by_hand: bool,
    pub(crate) observing_source: bool,
    pub(crate) observing_destination: bool,
    pub(crate) source_wake: Option<(u32, Time)>,
    pub(crate) destination_wake: Option<(u32, Time)>,
    pub(crate) waits_for_ready: Option<u32>,
    pub(crate) waits_for_listening: Option<u32>,
    pub(crate) waits_for_abandoned: Option<u32>,
    /// Questions whose answers are waited for.
    pub(crate) calls: Vec<Call>,
    pub(crate) verdict_calls: Vec<Call>,
    /// An operator who does not care whether the other host is off.
    pub careless: bool,
    /// An operator decided on the destination.
    pub(crate) decided_there: bool,
    /// When it was given up, the destination had heard that the guest is its own, or not.
    pub had_heard: Option<bool>,
}

/// How long a relay carries on without an agent.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn gone() -> Reason {
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

pub(crate) fn path() -> Path {
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
            source_deaths: 0,
            destination_deaths: 0,
            source_host: true,
            destination_host: true,
            source_disk: None,
            destination_disk: None,
            source_hangs: false,
            destination_hangs: false,
            held: Vec::new(),
            source_full: false,
            destination_full: false,
            source_qemu: Qemu::running(MigrationSeen::None),
            destination_qemu: None,
            source_definition: true,
            destination_definition: false,
            source_told: false,
            destination_told: false,
            decided: false,
            control: true,
            source_session: false,
            destination_session: false,
            session: 0,
            postcopy: false,
            devices_lost: false,
            cut_off_unseen: false,
            resumed: 0,
            handshakes_break: false,
            handshakes_broken: 0,
            loses_journal: false,
            journals_lost: 0,
            connecting: None,
            replaced_in_vain: 0,
            resumes: 0,
            open_resume: None,
            hung: 0,
            ended_by_hand: false,
            observing_source: false,
            observing_destination: false,
            source_wake: None,
            destination_wake: None,
            waits_for_ready: None,
            waits_for_listening: None,
            waits_for_abandoned: None,
            calls: Vec::new(),
            verdict_calls: Vec::new(),
            careless: false,
            decided_there: false,
            had_heard: None,
        };
        world.source_qemu.migration = match world.random() % 3 {
            0 => MigrationSeen::None,
            1 => MigrationSeen::Completed,
            _ => MigrationSeen::Failed { reason: gone() },
        };
        world.source = Some(Source::new(migration(), Duration::ZERO));
        world.drive_source();
        world
    }

    /// As [`World::new`], with a guest that is to go on by postcopy.
    pub fn with_postcopy(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.postcopy = true;
        world.source_qemu.old = world.chance(50);
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

    pub(crate) fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.random() % 100 < percent
    }

    /// Mostly some milliseconds, now and then much longer.
    pub(crate) fn soon(&mut self) -> Duration {
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

    pub(crate) fn later(&mut self, event: Event) {
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

    pub(crate) fn strike(&mut self, fault: Fault, heals: Option<Duration>) {
        self.log.push((self.now, Event::Fault(fault)));
        self.fault(fault);
        if let Some(after) = heals {
            for healing in healing(fault) {
                self.at(self.now + after, Event::Fault(*healing));
            }
        }
    }

    /// Whether `event` needs a hypervisor that hangs.
    fn hangs(&self, event: &Event) -> bool {
        use drover_migrate::{destination, source};
        match event {
            Event::SourceDoes { action, .. } => {
                use source::Action;
                let needs = matches!(
                    action,
                    Action::StartMigration { .. }
                        | Action::StartPostcopy
                        | Action::ResumeMigration { .. }
                        | Action::Observe
                        | Action::LookAgain { .. }
                        | Action::KeepGuest
                );
                self.source_hangs && needs
            }
            Event::Transfer { .. }
            | Event::Told
            | Event::AfterMigrate
            | Event::PostcopyBegins
            | Event::DevicesSent
            | Event::SourceCut
            | Event::GivesUp { cancelled: true } => self.source_hangs,
            Event::DestinationDoes { action, .. } => {
                use destination::Action;
                let needs = matches!(
                    action,
                    Action::Listen | Action::Observe | Action::Settle | Action::ResumeGuest
                );
                (self.destination_hangs || self.destination_waits()) && needs
            }
            Event::PagesFollow { .. } => self.source_hangs || self.destination_hangs,
            Event::Loaded
            | Event::DevicesArrive { .. }
            | Event::AllArrive { .. }
            | Event::DestinationCut => self.destination_hangs,
            _ => false,
        }
    }

    pub(crate) fn happen(&mut self, event: Event) {
        if self.hangs(&event) {
            self.wait_for_resume(&event);
            return self.held.push(event);
        }
        match event {
            Event::WakeSource { life } if life == self.source_life => self.drive_source(),
            Event::WakeDestination { life } if life == self.destination_life => {
                self.drive_destination();
            }
            Event::ToSource { life, input } if life == self.source_life => self.tell_source(input),
            Event::ToDestination { life, input } if life == self.destination_life => {
                self.tell_destination(input);
            }
            Event::SourceSessionOver { life, session }
                if life == self.source_life && session == self.session =>
            {
                self.tell_source(source::Input::SessionFailed { reason: gone() });
            }
            Event::DestinationSessionOver { life, session }
                if life == self.destination_life && session == self.session =>
            {
                self.tell_destination(destination::Input::SessionFailed { reason: gone() });
            }
            Event::SourceDoes { life, action } if life == self.source_life => {
                self.source_does(action);
            }
            Event::DestinationDoes { life, action } if life == self.destination_life => {
                self.destination_does(action);
            }
            Event::Started { life } if life == self.destination_life => self.started(),
            Event::Request { life, action } => self.request(life, &action),
            Event::Answer { life, input } => self.hear_answer(life, input),
            Event::HeldRequest {
                life,
                action,
                accepted,
                by,
            } => self.held_request(life, action, accepted, by),
            Event::AskVerdict { life, question } => self.ask_verdict(life, question),
            Event::Verdict {
                life,
                question,
                verdict,
            } => self.hear_verdict(life, question, verdict),
            Event::CallEnds { life, question } => self.call_ends(life, question),
            Event::VerdictCallEnds { life, question } => self.verdict_call_ends(life, question),
            Event::Transfer { step } => self.transfer(step),
            Event::PostcopyRequested => self.tell_source(source::Input::PostcopyRequested),
            Event::PostcopyBegins => self.postcopy_begins(),
            Event::DevicesSent => self.devices_sent(),
            Event::DevicesArrive { session } => self.devices_arrive(session),
            Event::PagesFollow { session, part } => self.pages_follow(session, part),
            Event::AllArrive { session } => self.all_arrive(session),
            Event::GoesOn { session } => self.goes_on(session),
            Event::Reopen { life, attempt } => self.reopen(life, attempt),
            Event::Loaded => self.loaded(),
            Event::Told => self.told(),
            Event::AfterMigrate => self.source_qemu.after_migrate(),
            Event::SourceRelayEnds => self.source_relay_ends(),
            Event::DestinationRelayEnds => self.destination_relay_ends(),
            Event::SourceRelayIsAlone { deaths }
                if self.source_life == 0 && self.source_deaths == deaths =>
            {
                self.close_source_session();
            }
            Event::DestinationRelayIsAlone { deaths }
                if self.destination_life == 0 && self.destination_deaths == deaths =>
            {
                self.close_destination_session();
            }
            Event::SourceCut => self.gives_up(false),
            Event::GivesUp { cancelled } => self.gives_up(cancelled),
            Event::DestinationCut => self.destination_cut(),
            Event::Fault(fault) => self.fault(fault),
            Event::Operator(wish) => self.operator(wish),
            Event::SourceClaims { life } if life == self.source_life => self.source_claims(),
            Event::DestinationClaims { life } if life == self.destination_life => {
                self.destination_claims();
            }
            Event::ResumeUnanswered { resume } => self.resume_unanswered(resume),
            Event::EndWhatHangs => self.end_what_hangs(),
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
}
