//! What a command that changed a host says at its end.

use drover_api::{ChangeDetailView, ChangeState, ChangeStepState, ChangeView};
use drover_types::HostName;

use super::show::{cleaned, counted};
use crate::command::Outcome;
use crate::failure::{Failure, exit};

/// Of `drover doctor apply`, and of what else is carried out the same way, on this agent's host or the one that is named.
pub fn applied(view: &ChangeDetailView, on: Option<&HostName>) -> Result<String, Failure> {
    let change = &view.change;
    if change.state != ChangeState::Applied {
        return Err(otherwise(view));
    }
    let steps = counted(change.steps, "setting");
    let proof = match change.paths {
        0 => "nothing is proved by that: no path to another host worked before".to_owned(),
        paths => format!(
            "other hosts are reached as before, over {}; a link that is on none of them only carries again",
            counted(paths, "path")
        ),
    };
    let on = on.map_or_else(String::new, |host| format!(" on {host}"));
    Ok(format!(
        "applied: {steps}; {proof}\n`drover doctor undo {}`{on} takes it back; a restart of the host does as well\n",
        change.id
    ))
}

/// Of `drover doctor undo`.
pub fn undone(view: &ChangeDetailView) -> Result<Outcome, Failure> {
    let change = &view.change;
    if change.state != ChangeState::Undone {
        return Err(otherwise(view));
    }
    let steps = counted(change.steps, "setting");
    Outcome::new(format!("undone: {steps} as before\n"), "change", view)
}

/// It did not come to what was wanted.
fn otherwise(view: &ChangeDetailView) -> Failure {
    let ChangeView { id, state, .. } = &view.change;
    let why = view
        .change
        .why
        .as_deref()
        .unwrap_or("its journal tells no reason");
    let why = cleaned(why);
    let look = format!("`drover doctor changes {id}` shows all of it");
    let failure = match state {
        ChangeState::Refused => {
            let message = format!("nothing was changed: {why}");
            Failure::new(exit::REFUSED, "change-refused", message)
                .next("`drover doctor plan -o FILE` makes a plan that fits")
        }
        ChangeState::RolledBack => {
            let message = format!("all is as before, since {why}");
            Failure::new(exit::ERROR, "rolled-back", message).next(look)
        }
        ChangeState::GoneWithRestart => {
            let message = "the host was restarted meanwhile, and what was set is gone with that";
            Failure::new(exit::ERROR, "gone-with-restart", message).next(look)
        }
        ChangeState::InDoubt => {
            let message = format!("{}: {why}", left(view));
            Failure::new(exit::PARTIAL, "in-doubt", message).next(format!(
                "set them as they are to be; {look}, and `drover doctor undo {id}` tries again"
            ))
        }
        _ => Failure::error(format!("change {id} came to no end that is known: {why}")).next(look),
    };
    failure.with("change", view)
}

fn left(view: &ChangeDetailView) -> String {
    let left = view.steps.iter();
    let left = left.filter(|step| step.state == ChangeStepState::Left);
    let named: Vec<String> = left
        .map(|step| {
            let found = step.found.as_deref().unwrap_or("not known");
            format!("{} is {}", cleaned(&step.setting), cleaned(found))
        })
        .collect();
    format!(
        "{} left alone, as something else has changed them: {}",
        counted(named.len(), "setting"),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::ChangeStepView;

    fn view(state: ChangeState) -> ChangeDetailView {
        ChangeDetailView {
            change: ChangeView {
                id: "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a".parse().unwrap(),
                state,
                began: None,
                ended: None,
                rules: vec!["tcp-buffers".into()],
                steps: 1,
                set: 1,
                paths: 2,
                why: Some("nic0 went".into()),
                can_be_undone: true,
            },
            steps: vec![ChangeStepView {
                setting: "nic0 mtu".into(),
                from: "9000".into(),
                to: "1500".into(),
                state: ChangeStepState::Left,
                found: Some("\"1400\"".into()),
            }],
        }
    }

    #[test]
    fn every_end_has_its_exit_code_and_says_what_is_there() {
        let text = applied(&view(ChangeState::Applied), None).unwrap();
        assert!(
            text.contains("1 setting; other hosts are reached as before, over 2 paths"),
            "{text}"
        );
        undone(&view(ChangeState::Undone)).unwrap();
        for (state, exit, said) in [
            (
                ChangeState::Refused,
                exit::REFUSED,
                "nothing was changed: nic0 went",
            ),
            (
                ChangeState::RolledBack,
                exit::ERROR,
                "all is as before, since nic0 went",
            ),
            (ChangeState::InDoubt, exit::PARTIAL, "1 setting left alone"),
            (
                ChangeState::GoneWithRestart,
                exit::ERROR,
                "restarted meanwhile",
            ),
            (ChangeState::Unknown, exit::ERROR, "no end that is known"),
        ] {
            let failure = applied(&view(state), None).unwrap_err();
            assert_eq!(failure.exit(), exit, "{state:?}");
            assert!(failure.message().contains(said), "{failure:?}");
        }
        let nothing = view(ChangeState::Applied);
        assert!(undone(&nothing).is_err());
    }

    #[test]
    fn what_was_not_proved_is_said() {
        let mut view = view(ChangeState::Applied);
        view.change.paths = 0;
        let host = "b".parse().unwrap();
        let text = applied(&view, Some(&host)).unwrap();
        assert!(text.contains("nothing is proved by that"), "{text}");
        assert!(text.contains("` on b takes it back"), "{text}");
    }
}
