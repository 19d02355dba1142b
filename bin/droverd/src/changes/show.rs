//! Changes as they are shown.

use drover_api::{
    ChangeDetailView, ChangeFileView, ChangeState, ChangeStepState, ChangeStepView, ChangeView,
};
use drover_change::{Account, JournalError, Outcome, Phase, Record, Standing, named};
use drover_tune::Step;
use drover_tune::lasting::Rewrite;
use drover_types::{ChangeId, with_sources};
use jiff::Timestamp;

use super::lasting;

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
            standing.touched().filter(|step| *step < steps).count()
        },
        files: account.order.files().len(),
        paths: standing.paths.len(),
        why: why(&standing.phase),
        can_be_undone: standing.can_be_undone() && !is_gone,
    }
}

/// The same with all that it sets.
pub fn detail(id: ChangeId, account: &Account, boot: &str) -> ChangeDetailView {
    let is_gone = is_gone(&account.standing, boot);
    let steps = (0..).zip(&account.steps);
    let files = (account.steps.len()..).zip(account.order.files());
    let lasts = account.order.lasting.clone().unwrap_or_default();
    ChangeDetailView {
        change: change(id, account, boot),
        steps: steps
            .map(|(number, step)| self::step(step, became(number, &account.standing, is_gone)))
            .collect(),
        files: files
            .map(|(number, written)| file(written, became(number, &account.standing, is_gone)))
            .collect(),
        by_hand: lasting::by_hand(&lasts.by_hand),
        not_kept: lasting::not_kept(&lasts.not_kept),
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
        files: 0,
        paths: 0,
        why: Some(with_sources(error)),
        can_be_undone: false,
    }
}

/// What was set is gone with the host's restart, whether anybody has looked since or not.
fn is_gone(standing: &Standing, boot: &str) -> bool {
    let is_over = matches!(standing.phase, Phase::Ended(_));
    is_over && standing.boot.is_some() && !standing.may_be_there(boot)
}

fn state(standing: &Standing, steps: usize, is_gone: bool) -> ChangeState {
    match &standing.phase {
        Phase::New => ChangeState::Applying,
        Phase::Applying if standing.done() == steps && !standing.is_proved() => {
            ChangeState::Proving
        }
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

/// What became of a step, and what is there of one that was left.
type Became = (ChangeStepState, Option<String>);

fn became(number: usize, standing: &Standing, is_gone: bool) -> Became {
    let left = standing.left();
    let left = left.into_iter().find(|left| left.step == number);
    let state = if left.is_some() {
        ChangeStepState::Left
    } else if is_gone {
        ChangeStepState::TakenBack
    } else if standing.touched().any(|touched| touched == number) {
        ChangeStepState::Done
    } else if let Some(why) = standing.passed_by(number) {
        return (ChangeStepState::NotDone, Some(why.to_owned()));
    } else if number < standing.done() {
        ChangeStepState::TakenBack
    } else {
        ChangeStepState::NotDone
    };
    (state, left.map(|left| left.found))
}

fn step(step: &Step, (state, found): Became) -> ChangeStepView {
    let (Step::File { from, to, .. } | Step::Nic { from, to, .. }) = step;
    ChangeStepView {
        setting: named(step),
        from: from.clone(),
        to: to.clone(),
        state,
        found,
    }
}

fn file(written: &Rewrite, (state, found): Became) -> ChangeFileView {
    let (goes, comes) = written.lines();
    ChangeFileView {
        by: written.by.clone(),
        file: written.path.clone(),
        goes,
        comes,
        state,
        found,
    }
}
