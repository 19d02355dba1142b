//! Changes as they are shown.

use drover_api::{ChangeDetailView, ChangeState, ChangeStepState, ChangeStepView, ChangeView};
use drover_change::{Account, JournalError, Outcome, Phase, Record, Standing, named};
use drover_tune::Step;
use drover_types::{ChangeId, with_sources};
use jiff::Timestamp;

/// One change, by its journal, on a host with this boot id.
pub fn change(id: ChangeId, account: &Account, boot: &str) -> ChangeView {
    let standing = &account.standing;
    let steps = account.steps.len();
    let is_gone = is_gone(standing, boot);
    let began = account
        .records
        .iter()
        .rev()
        .find_map(|record| match record {
            Record::Began { at, .. } => Some(*at),
            _ => None,
        });
    let mut rules: Vec<String> = Vec::new();
    for change in &account.order.plan.changes {
        if !rules.contains(&change.rule) {
            rules.push(change.rule.clone());
        }
    }
    ChangeView {
        id,
        state: state(standing, steps, is_gone),
        began,
        ended: ended(account),
        rules,
        steps,
        set: if is_gone {
            0
        } else {
            standing.touched().count()
        },
        paths: standing.paths.len(),
        why: why(&standing.phase),
        can_be_undone: standing.can_be_undone() && !is_gone,
    }
}

/// The same with all that it sets.
pub fn detail(id: ChangeId, account: &Account, boot: &str) -> ChangeDetailView {
    let is_gone = is_gone(&account.standing, boot);
    let steps = (0..).zip(&account.steps);
    ChangeDetailView {
        change: change(id, account, boot),
        steps: steps
            .map(|(number, step)| self::step(number, step, &account.standing, is_gone))
            .collect(),
    }
}

/// One whose folder does not tell.
pub fn unreadable(id: ChangeId, error: &JournalError) -> ChangeView {
    ChangeView {
        id,
        state: ChangeState::Unreadable,
        began: None,
        ended: None,
        rules: Vec::new(),
        steps: 0,
        set: 0,
        paths: 0,
        why: Some(with_sources(error)),
        can_be_undone: false,
    }
}

/// What was set is gone with the host's restart, whether anybody has looked since or not.
fn is_gone(standing: &Standing, boot: &str) -> bool {
    let began = standing.boot.as_deref();
    let is_over = matches!(standing.phase, Phase::Ended(_));
    is_over && began.is_some_and(|began| began != boot)
}

fn state(standing: &Standing, steps: usize, is_gone: bool) -> ChangeState {
    match &standing.phase {
        Phase::New => ChangeState::Applying,
        Phase::Applying if standing.done() == steps => ChangeState::Proving,
        Phase::Applying => ChangeState::Applying,
        Phase::RollingBack { .. } => ChangeState::RollingBack,
        Phase::Undoing => ChangeState::Undoing,
        Phase::Restarted => ChangeState::Recovering,
        Phase::Ended(outcome) => match outcome {
            Outcome::Refused { .. } => ChangeState::Refused,
            Outcome::Applied { .. } if is_gone => ChangeState::GoneWithRestart,
            Outcome::Applied { .. } => ChangeState::Applied,
            Outcome::RolledBack { .. } => ChangeState::RolledBack,
            Outcome::Undone => ChangeState::Undone,
            Outcome::GoneWithRestart => ChangeState::GoneWithRestart,
            Outcome::InDoubt { .. } => ChangeState::InDoubt,
        },
    }
}

fn why(phase: &Phase) -> Option<String> {
    match phase {
        Phase::RollingBack { why }
        | Phase::Ended(
            Outcome::Refused { why } | Outcome::RolledBack { why } | Outcome::InDoubt { why },
        ) => Some(why.clone()),
        _ => None,
    }
}

fn ended(account: &Account) -> Option<Timestamp> {
    match account.records.last() {
        Some(Record::Ended { at, .. }) => Some(*at),
        _ => None,
    }
}

fn step(number: usize, step: &Step, standing: &Standing, is_gone: bool) -> ChangeStepView {
    let left = standing.left();
    let left = left.into_iter().find(|left| left.step == number);
    let state = if left.is_some() {
        ChangeStepState::Left
    } else if is_gone {
        ChangeStepState::TakenBack
    } else if standing.touched().any(|touched| touched == number) {
        ChangeStepState::Done
    } else if number < standing.done() {
        ChangeStepState::TakenBack
    } else {
        ChangeStepState::NotDone
    };
    let (Step::File { from, to, .. } | Step::Nic { from, to, .. }) = step;
    ChangeStepView {
        setting: named(step),
        from: from.clone(),
        to: to.clone(),
        state,
        found: left.map(|left| left.found),
    }
}
