//! The destination's table.

use super::*;
use destination::{Action, Destination, Input, Phase};
use drover_migrate::limits;

fn refused_to_run() -> Input {
    Input::ResumeFailed {
        refused: true,
        reason: why(),
    }
}

/// When a destination that waits for pages has asked.
const VERDICT_ASKED: Time = limits::VERDICT_RETRY;

/// The source has just said so.
const RUN: Input = Input::RunRequested { age: Time::ZERO };

fn inputs(question: Question) -> Vec<(String, Input)> {
    let mut inputs = vec![
        Input::HypervisorStarted,
        Input::StartFailed { reason: why() },
        Input::ListenRequested,
        Input::Listening,
        Input::ListenFailed { reason: why() },
        Input::HypervisorGone { reason: why() },
        Input::SessionLives,
        Input::SessionFailed { reason: why() },
        Input::SessionReopened,
        Input::AbandonRequested,
        RUN,
        Input::VerdictRefused {
            question,
            reason: why(),
        },
        Input::VerdictUnreachable {
            question,
            reason: why(),
        },
        Input::ResolveRequested(Resolution::RunHere),
        Input::GuestResumed,
        refused_to_run(),
        Input::GuestAdopted,
        Input::AdoptFailed { reason: why() },
        Input::Journaled,
        Input::JournalFailed { reason: why() },
    ]
    .into_iter()
    .map(|input| (input.name().to_owned(), input))
    .collect::<Vec<_>>();
    for verdict in [
        Verdict::Undecided,
        Verdict::HandedOff,
        Verdict::Kept,
        Verdict::CutOff,
    ] {
        for (question, late) in [(question, ""), (Question::default(), ", late")] {
            let input = Input::VerdictAnswered { question, verdict };
            inputs.push((format!("verdict-answered, {}{late}", name(&verdict)), input));
        }
    }
    let late = Input::VerdictUnreachable {
        question: Question::default(),
        reason: why(),
    };
    inputs.push(("verdict-unreachable, late".into(), late));
    let old = Input::RunRequested {
        age: limits::WORD_COUNTS + LATER,
    };
    inputs.push(("run-requested, old".into(), old));
    for wish in [Resolution::Discard, Resolution::GiveUp] {
        let input = Input::ResolveRequested(wish);
        inputs.push((format!("resolve-requested, {}", name(&wish)), input));
    }
    let look = |(name, look)| (format!("hypervisor, {name}"), Input::Hypervisor(look));
    inputs.extend(looks().into_iter().map(look));
    let settled = [
        ("active", seen(MigrationSeen::Active, GuestSeen::InMigrate)),
        (
            "completed",
            seen(MigrationSeen::Completed, GuestSeen::Paused),
        ),
        (
            "postcopy-paused",
            seen(MigrationSeen::PostcopyPaused, GuestSeen::Paused),
        ),
    ];
    let settled = settled.map(|(name, look)| (format!("settled, {name}"), Input::Settled(look)));
    inputs.extend(settled);
    inputs
}

fn drain(destination: &mut Destination, now: Time) -> (Vec<String>, Option<Time>) {
    let mut done = Vec::new();
    loop {
        match destination.poll(now) {
            Output::Wait(until) => return (done, until),
            Output::Do(Action::Finish(ending)) => {
                done.push(format!("Finish({})", name(&ending)));
            }
            Output::Do(action) => done.push(name(&action)),
            Output::Journal(record) => {
                done.push(format!("journal {}", name(&record.step)));
                destination.handle(now, Input::Journaled).unwrap();
            }
        }
    }
}

fn after(inputs: &[Input]) -> Destination {
    let mut destination = Destination::new(migration(), Time::ZERO);
    drain(&mut destination, Time::ZERO);
    on(destination, Time::ZERO, inputs)
}

/// Answers are to the last question.
fn on(mut destination: Destination, now: Time, inputs: &[Input]) -> Destination {
    for input in inputs {
        let question = destination.question();
        let input = match input.clone() {
            Input::VerdictUnreachable { reason, .. } => {
                Input::VerdictUnreachable { question, reason }
            }
            Input::VerdictAnswered { verdict, .. } => Input::VerdictAnswered { question, verdict },
            other => other,
        };
        destination.handle(now, input).unwrap();
        drain(&mut destination, now);
    }
    destination
}

/// The time that the machine waits for now passes.
fn later(mut destination: Destination) -> Destination {
    let (_, until) = drain(&mut destination, Time::ZERO);
    drain(&mut destination, until.unwrap());
    destination
}

fn recovering(inputs: &[Input]) -> Destination {
    recovered(DestinationStep::Incoming, inputs)
}

fn recovered(step: DestinationStep, inputs: &[Input]) -> Destination {
    let record = DestinationRecord {
        version: JournalVersion,
        migration: migration(),
        step,
    };
    let mut destination = Destination::recover(record, Time::ZERO);
    drain(&mut destination, Time::ZERO);
    on(destination, Time::ZERO, inputs)
}

/// An operator had it run here; where its definition was written, it has.
fn recovering_by_an_operator(has_definition: bool) -> Destination {
    recovered(DestinationStep::RunHere, &[]).with_definition(has_definition)
}

fn recovering_what_has_run() -> Destination {
    recovering(&[]).with_guest_that_has_run(true)
}

/// What the source said is as old as it can be and count.
fn old_word(arrived: &[Input], then: &[Input]) -> Destination {
    let word = Input::RunRequested {
        age: limits::WORD_COUNTS,
    };
    after(&[arrived.to_vec(), vec![word], then.to_vec()].concat())
}

fn phases() -> Vec<(&'static str, Destination)> {
    let prepared = vec![Input::HypervisorStarted];
    let opening = [prepared.clone(), vec![Input::ListenRequested]].concat();
    let listening = [opening.clone(), vec![Input::Listening]].concat();
    let active = Input::Hypervisor(seen(MigrationSeen::Active, GuestSeen::InMigrate));
    let receiving = [listening.clone(), vec![active]].concat();
    let told = [receiving.clone(), vec![RUN]].concat();
    let cut = Input::SessionFailed { reason: why() };
    let settling = [receiving.clone(), vec![cut.clone()]].concat();
    let all = Input::Hypervisor(seen(MigrationSeen::Completed, GuestSeen::Paused));
    let arrived = [receiving.clone(), vec![all]].concat();
    let resuming = [arrived.clone(), vec![RUN]].concat();
    let adopting = [resuming.clone(), vec![Input::GuestResumed]].concat();
    let running = [adopting.clone(), vec![Input::GuestAdopted]].concat();
    let abandoning = [receiving.clone(), vec![Input::AbandonRequested]].concat();
    let gone = Input::HypervisorGone { reason: why() };
    let wish = |wish| vec![Input::ResolveRequested(wish)];
    let silent = Input::VerdictUnreachable {
        question: Question::default(),
        reason: why(),
    };
    let silence = std::slice::from_ref(&silent);
    let doubtful = on(later(after(&arrived)), Time::ZERO, silence);
    let waits = on(
        later(doubtful.clone()),
        Time::ZERO,
        &wish(Resolution::RunHere),
    );
    let asked = on(doubtful.clone(), Time::ZERO, &wish(Resolution::RunHere));
    let discard = on(doubtful.clone(), Time::ZERO, &wish(Resolution::Discard));
    let devices = Input::Hypervisor(seen(
        MigrationSeen::Postcopy { pages: false },
        GuestSeen::Paused,
    ));
    let arrived_early = [receiving.clone(), vec![devices]].concat();
    let filling = [
        arrived_early.clone(),
        vec![RUN, Input::GuestResumed, Input::GuestAdopted],
    ]
    .concat();
    let told_early = [arrived_early.clone(), vec![RUN]].concat();
    let unanswered = Input::ResumeFailed {
        refused: false,
        reason: why(),
    };
    let hangs = [told_early.clone(), vec![unanswered, Input::GuestAdopted]].concat();
    let broken = after(&[filling.clone(), vec![cut.clone()]].concat());
    let lost = Input::VerdictAnswered {
        question: Question::default(),
        verdict: Verdict::CutOff,
    };
    let last_look = on(later(broken.clone()), VERDICT_ASKED, &[lost]);
    let refused = [resuming.clone(), vec![refused_to_run()]].concat();
    vec![
        ("starting", after(&[])),
        ("prepared", after(&prepared)),
        ("opening", after(&opening)),
        ("receiving, nothing yet", after(&listening)),
        ("receiving", after(&receiving)),
        ("receiving, handed off", after(&told)),
        ("settling", after(&settling)),
        ("arrived", after(&arrived)),
        ("arrived, asking", later(after(&arrived))),
        ("arrived, not answered", doubtful),
        ("arrived, to be run", waits),
        ("arrived, asked for the last time", asked.clone()),
        ("discarding", on(discard, Time::ZERO, silence)),
        ("resuming, by an operator", on(asked, Time::ZERO, silence)),
        ("resuming", after(&resuming)),
        ("resuming, refused", after(&refused)),
        (
            "resuming, refused, by an old word",
            old_word(&arrived, &[refused_to_run()]),
        ),
        (
            "resuming, not answered, by an old word",
            old_word(&arrived, &[]),
        ),
        ("arrived, pages to follow", after(&arrived_early)),
        ("adopting", after(&adopting)),
        ("filling", after(&filling)),
        ("resuming, pages to follow", after(&told_early)),
        ("filling, not known to run", after(&hangs)),
        (
            "recovering, filling, not known to run",
            recovered(DestinationStep::Filling { unanswered: true }, &[]),
        ),
        ("filling, session failed", broken.clone()),
        ("filling, session failed, asking", later(broken.clone())),
        (
            "filling, nobody answers",
            on(later(broken.clone()), VERDICT_ASKED, silence),
        ),
        ("filling, last look", last_look),
        (
            "recovering, filling",
            recovered(
                DestinationStep::Filling { unanswered: false },
                &[Input::SessionLives],
            ),
        ),
        ("abandoning", after(&abandoning)),
        (
            "abandoning, start unanswered",
            after(&[Input::AbandonRequested]),
        ),
        ("recovering", recovering(&[])),
        (
            "recovering, to be run by an operator",
            recovering_by_an_operator(false),
        ),
        (
            "recovering, adopted by an operator's word",
            recovering_by_an_operator(true),
        ),
        ("recovering, has run", recovering_what_has_run()),
        (
            "recovering, to be discarded",
            recovered(DestinationStep::Discarding, &[]),
        ),
        (
            "recovering, session lives",
            recovering(&[Input::SessionLives]),
        ),
        (
            "recovering, session gone",
            recovering(&[Input::SessionFailed { reason: why() }]),
        ),
        ("running", after(&running)),
        (
            "abandoned",
            after(&[abandoning, vec![gone.clone()]].concat()),
        ),
        ("lost", after(&[arrived, vec![gone]].concat())),
    ]
}

#[test]
fn the_table_of_the_destination_is_the_committed_one() {
    let mut table = String::new();
    for (title, destination) in phases() {
        let before = destination.phase().name();
        let mut lines = Vec::new();
        for (input, value) in inputs(destination.question()) {
            let mut destination = destination.clone();
            let refused = destination.handle(LATER, value).err();
            let (done, _) = drain(&mut destination, LATER);
            lines.push((
                input,
                result(destination.phase().name(), before, &done, refused),
            ));
        }
        lines.extend(deadline(destination.clone(), before));
        section(&mut table, title, &lines);
    }
    insta::assert_snapshot!("destination", table);
}

fn deadline(mut destination: Destination, before: &str) -> Option<(String, String)> {
    let (_, until) = drain(&mut destination, Time::ZERO);
    let until = until?;
    let (done, _) = drain(&mut destination, until);
    let result = result(destination.phase().name(), before, &done, None);
    Some((format!("deadline, {} s", until.as_secs()), result))
}

#[test]
fn every_phase_has_a_deadline_or_waits_for_something_that_an_operator_can_act_on() {
    for (title, mut destination) in phases() {
        let (_, until) = drain(&mut destination, Time::ZERO);
        let Some(waiting) = destination.waiting() else {
            assert!(matches!(destination.phase(), Phase::Ended(_)), "{title}");
            continue;
        };
        assert!(
            until.is_some() || waiting.on.what_to_do().is_some(),
            "{title}"
        );
    }
}

#[test]
fn a_guest_that_an_operator_had_run_is_still_this_hosts_after_a_loss_of_power() {
    let mut destination = recovering_by_an_operator(true);
    let abandon = destination.handle(Time::ZERO, Input::AbandonRequested);
    assert_eq!(abandon, Err(Refused::TooLate));
    let gone = Input::HypervisorGone { reason: why() };
    destination.handle(Time::ZERO, gone).unwrap();
    let (done, _) = drain(&mut destination, Time::ZERO);
    assert_eq!(done.last().unwrap(), "Finish(Running)");
    assert_eq!(destination.resolution(), Some(Resolution::RunHere));
    assert_eq!(destination.hand_off_answer(), HandOffAnswer::Running);
}

#[test]
fn a_guest_that_has_run_and_ended_is_this_hosts_where_its_definition_is_and_lost_where_it_is_not() {
    for (has_definition, expected) in [(true, "Finish(Running)"), (false, "Finish(Lost)")] {
        let mut destination = recovering_what_has_run().with_definition(has_definition);
        let gone = Input::HypervisorGone { reason: why() };
        destination.handle(Time::ZERO, gone).unwrap();
        let (done, _) = drain(&mut destination, Time::ZERO);
        assert_eq!(done.last().unwrap(), expected);
        assert_eq!(destination.resolution(), None);
    }
}

#[test]
fn a_definition_alone_does_not_make_an_arriving_guest_this_hosts() {
    let mut destination = recovering(&[]).with_definition(true);
    let gone = Input::HypervisorGone { reason: why() };
    destination.handle(Time::ZERO, gone).unwrap();
    let (done, _) = drain(&mut destination, Time::ZERO);
    assert_eq!(done.last().unwrap(), "Finish(Abandoned)");
}
