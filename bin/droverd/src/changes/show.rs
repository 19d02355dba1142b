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
    let is_set = |number: &usize| {
        let step = account.steps.get(*number);
        step.is_some_and(|step| !account.is_void(step, boot))
    };
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
            standing.touched().filter(is_set).count()
        },
        files: account.order.files().len(),
        paths: standing.paths.len(),
        opened: standing.opened.len(),
        sizes: standing.sizes.len(),
        why: why(&standing.phase),
        can_be_undone: standing.can_be_undone() && !is_gone,
    }
}

/// The same with all that it sets.
pub fn detail(id: ChangeId, account: &Account, boot: &str) -> ChangeDetailView {
    let is_gone = is_gone(&account.standing, boot);
    let state = |number: usize, step: Option<&Step>| {
        let is_void = step.is_some_and(|step| account.is_void(step, boot));
        became(number, &account.standing, (is_gone, is_void))
    };
    let steps = (0..).zip(&account.steps);
    let files = (account.steps.len()..).zip(account.order.files());
    let lasts = account.order.lasting.clone().unwrap_or_default();
    ChangeDetailView {
        change: change(id, account, boot),
        steps: steps
            .map(|(number, step)| self::step(step, state(number, Some(step))))
            .collect(),
        not_opened: account.standing.unopened.clone(),
        not_measured: account.standing.untold.clone(),
        files: files
            .map(|(number, written)| file(written, state(number, None)))
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
        opened: 0,
        sizes: 0,
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

/// Of a change that is gone with a restart, or of a step that alone is.
fn became(number: usize, standing: &Standing, (is_gone, is_void): (bool, bool)) -> Became {
    // It was never set, so that no restart takes it back.
    if let Some(why) = standing.passed_by(number) {
        return (ChangeStepState::NotDone, Some(why.to_owned()));
    }
    let left = standing.left();
    let left = left.into_iter().find(|left| left.step == number);
    let is_touched = standing.touched().any(|touched| touched == number);
    let state = if left.is_some() {
        ChangeStepState::Left
    } else if is_gone {
        ChangeStepState::TakenBack
    } else if is_touched && !is_void {
        ChangeStepState::Done
    } else if is_touched || number < standing.done() {
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

#[cfg(test)]
pub(super) mod tests {
    use drover_change::{Journal, Lasts, Order, Plan, Planned};
    use drover_tune::Disruption;
    use uuid::Uuid;

    use super::*;

    /// A change that lasts by a file, of a setting that the file keeps and of an interrupt, which no file does.
    pub fn lasting(folder: &std::path::Path) -> Account {
        let at = Timestamp::UNIX_EPOCH;
        let boot = "first".to_owned();
        let set = |path: &str| Step::File {
            path: path.into(),
            from: "0".into(),
            to: "1".into(),
        };
        let plan = Plan {
            host: "a".parse().unwrap(),
            boot: boot.clone(),
            made_at: at,
            version: "1".into(),
            changes: vec![Planned {
                rule: "a-rule".into(),
                nic: None,
                disruption: Disruption::Safe,
                why: "because".into(),
                steps: vec![
                    set("proc/sys/net/ipv4/tcp_timestamps"),
                    set("proc/irq/7/smp_affinity_list"),
                ],
            }],
            lasting: None,
        };
        let file = Rewrite {
            by: "sysctl.d".into(),
            path: "/etc/sysctl.d/99-drover.conf".into(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            folders: Vec::new(),
            before: None,
            after: "net.ipv4.tcp_timestamps = 1\n".into(),
        };
        let order = Order {
            plan,
            paths: Vec::new(),
            links: Vec::new(),
            moving: 0,
            lasting: Some(Lasts {
                files: vec![file],
                ..Lasts::default()
            }),
        };
        let mut journal = Journal::make(folder, &order).unwrap();
        let began = Record::Began {
            at,
            boot,
            paths: Vec::new(),
            opened: Vec::new(),
            unopened: Vec::new(),
            carriers: Vec::new(),
            sizes: Vec::new(),
            untold: Vec::new(),
        };
        let steps = |steps: std::ops::Range<usize>| {
            steps.flat_map(|step| [Record::AboutTo { step }, Record::Done { step }])
        };
        let outcome = Outcome::Applied { proven: 0 };
        let records = [began].into_iter().chain(steps(0..2));
        let records = records.chain([Record::Proved]).chain(steps(2..3));
        for record in records.chain([Record::Ended { at, outcome }]) {
            journal.append(record).unwrap();
        }
        Account::read(folder).unwrap()
    }

    #[test]
    fn after_a_restart_interrupts_do_not_count_as_set_by_a_change_that_lasts() {
        let root = tempfile::tempdir().unwrap();
        let account = lasting(&root.path().join("change"));
        let id = ChangeId(Uuid::from_u128(1));
        let told = |boot: &str| {
            let view = detail(id, &account, boot);
            let states: Vec<_> = view.steps.iter().map(|step| step.state).collect();
            assert_eq!(view.files[0].state, ChangeStepState::Done);
            assert!(view.change.can_be_undone);
            (view.change.set, states)
        };
        let done = ChangeStepState::Done;
        assert_eq!(told("first"), (2, vec![done, done]));
        let taken_back = ChangeStepState::TakenBack;
        assert_eq!(told("second"), (1, vec![done, taken_back]));
    }

    #[test]
    fn what_was_passed_by_is_told_with_why_after_a_restart_too() {
        let at = Timestamp::UNIX_EPOCH;
        let why = "the kernel spreads it by itself";
        let began = Record::Began {
            at,
            boot: "first".to_owned(),
            paths: Vec::new(),
            opened: Vec::new(),
            unopened: Vec::new(),
            carriers: Vec::new(),
            sizes: Vec::new(),
            untold: Vec::new(),
        };
        let passed_by = Record::PassedBy {
            step: 0,
            why: why.to_owned(),
        };
        let outcome = Outcome::Applied { proven: 0 };
        let records = [
            began,
            Record::AboutTo { step: 0 },
            passed_by,
            Record::AboutTo { step: 1 },
            Record::Done { step: 1 },
            Record::Ended { at, outcome },
        ];
        let standing = Standing::of(2, 0, &records).unwrap();
        let passed = (ChangeStepState::NotDone, Some(why.to_owned()));
        for boot in ["first", "second"] {
            let is_gone = is_gone(&standing, boot);
            assert_eq!(is_gone, boot == "second");
            let became = |number| became(number, &standing, (is_gone, is_gone));
            assert_eq!(became(0), passed);
            let set = if is_gone {
                ChangeStepState::TakenBack
            } else {
                ChangeStepState::Done
            };
            assert_eq!(became(1), (set, None));
        }
    }
}
