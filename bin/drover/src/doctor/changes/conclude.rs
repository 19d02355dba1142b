//! What a command that changed a host says at its end.

use std::fmt::Write as _;

use drover_api::{
    ChangeDetailView, ChangeState, ChangeStepState, ChangeView, ClientError, ForgottenView,
};
use drover_types::{ChangeId, HostName};

use super::show::{cleaned, counted, not_proved, to_do};
use crate::command::Outcome;
use crate::failure::{Failure, exit};

/// Which command changes a host, so that whoever reads of it is told where to look and what to repeat.
#[derive(Debug, Clone, Copy)]
pub enum Ordered<'a> {
    /// One of `drover doctor`, which is about its agent's host.
    Doctor,
    /// `drover nic set`, which may be about another host than its agent's.
    Link {
        /// Whose link.
        host: &'a HostName,
        /// Which.
        nic: &'a str,
    },
}

impl Ordered<'_> {
    /// A command of `drover doctor`, and where it is to be given.
    fn doctor(self, words: &str) -> String {
        match self {
            Self::Doctor => format!("`drover doctor {words}`"),
            Self::Link { host, .. } => format!("`drover doctor {words}` on {host}"),
        }
    }

    /// A command that shows all of a change.
    pub fn shows(self, id: ChangeId) -> String {
        self.doctor(&format!("changes {id}"))
    }

    /// What to do after a refusal.
    fn again(self) -> String {
        match self {
            Self::Doctor => "`drover doctor plan -o FILE` makes a plan that fits".to_owned(),
            Self::Link { host, nic } => {
                let nic = cleaned(nic);
                format!("`drover nic show {host} {nic}` shows what is set now; then try again")
            }
        }
    }
}

/// Why a change was not begun; or that this is not known, and what becomes of it.
pub fn not_begun(error: ClientError, ordered: Ordered<'_>) -> Failure {
    let becomes =
        "it goes on, and takes itself back unless other hosts and links are reached as before";
    not_done(error, ordered, becomes)
}

/// The same of an undo.
pub fn not_undone(error: ClientError) -> Failure {
    not_done(error, Ordered::Doctor, "it goes on to its end")
}

fn not_done(error: ClientError, ordered: Ordered<'_>, becomes: &str) -> Failure {
    let (is_open, is_told) = (error.leaves_it_open(), error.refusal().is_some());
    let failure = Failure::of_changing(error);
    if !is_open || is_told {
        return failure;
    }
    let why = failure.message();
    let message = format!("it is not known whether that was begun: {why}");
    let list = ordered.doctor("changes");
    Failure::new(exit::NO_AGENT, "outcome-unknown", message)
        .next(format!("if it was, {becomes}: {list} lists it"))
}

/// Of `drover doctor apply`, and of what else is carried out the same way.
pub fn applied(view: &ChangeDetailView, ordered: Ordered<'_>) -> Result<String, Failure> {
    let change = &view.change;
    if change.state != ChangeState::Applied {
        return Err(otherwise(view, ordered));
    }
    let steps = set(view);
    let proof = match change.paths {
        0 => "nothing is proved by that: no path to another host worked before".to_owned(),
        paths => format!(
            "other hosts are reached as before, over {}{}; a link that is on none of them only carries again",
            counted(paths, "path"),
            opened(change)
        ),
    };
    let undo = ordered.doctor(&format!("undo {}", change.id));
    let restart = match change.files {
        0 => "a restart of the host does as well",
        _ => "a restart of the host takes back what does not last",
    };
    let mut text = format!("applied: {steps}; {proof}{}\n", sizes(change));
    for line in not_proved(view) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{undo} takes it back; {restart}");
    Ok(text)
}

/// By how many paths others reach this host of themselves.
fn opened(change: &ChangeView) -> String {
    match change.opened {
        0 => String::new(),
        paths => format!(", and open connections to this one over {paths} of them"),
    }
}

/// What is proved of how large packets may be.
fn sizes(change: &ChangeView) -> String {
    match change.sizes {
        0 => String::new(),
        paths => format!(
            "; packets as large as they have to cross {} of migrations, both ways",
            counted(paths, "path")
        ),
    }
}

/// How many settings were set, and why the others were not: they are the kernel's own.
fn set(view: &ChangeDetailView) -> String {
    let passed = view
        .steps
        .iter()
        .filter(|step| step.state == ChangeStepState::NotDone);
    let passed: Vec<&str> = passed
        .map(|step| step.found.as_deref().unwrap_or("not known"))
        .collect();
    let Some(why) = passed.first() else {
        return counted(view.change.steps, "setting");
    };
    let set = view.change.steps.saturating_sub(passed.len());
    format!(
        "{}; {} passed by, because {}",
        counted(set, "setting"),
        passed.len(),
        cleaned(why)
    )
}

/// What of a change that was to last does, and what does not.
pub fn kept(view: &ChangeDetailView) -> String {
    let mut text = String::new();
    for file in &view.files {
        let _ = writeln!(
            text,
            "written, for {}: {}",
            cleaned(&file.by),
            cleaned(&file.file)
        );
    }
    for line in to_do(&view.by_hand, &view.not_kept) {
        let _ = writeln!(text, "{line}");
    }
    if text.is_empty() {
        text.push_str("lasts: all that it takes was there already\n");
    }
    text
}

/// Of `drover doctor undo`.
pub fn undone(view: &ChangeDetailView) -> Result<Outcome, Failure> {
    let change = &view.change;
    if change.state != ChangeState::Undone {
        return Err(otherwise(view, Ordered::Doctor));
    }
    let steps = counted(change.steps, "setting");
    let files = match change.files {
        0 => String::new(),
        files => format!(" and {}", counted(files, "file")),
    };
    Outcome::new(
        format!("undone: {steps}{files} as before\n"),
        "change",
        view,
    )
}

/// Of `drover doctor forget`, by how the change was.
pub fn forgotten(view: &ForgottenView) -> Result<Outcome, Failure> {
    let ChangeView {
        id,
        can_be_undone,
        files,
        ..
    } = view.change;
    let what = match (can_be_undone, files) {
        (false, _) => "nothing of it was there to be undone".to_owned(),
        (true, 0) => "what it has set stays, and cannot be undone any more".to_owned(),
        (true, files) => format!(
            "what it has set stays, with {}, and cannot be undone any more",
            counted(files, "file")
        ),
    };
    let mut text = format!("forgotten: change {id}; {what}\n");
    for older in &view.holds_up {
        let _ = writeln!(
            text,
            "change {older} has set some of the same before, and cannot be undone either while that stays as it is"
        );
    }
    Outcome::new(text, "change", view)
}

/// It did not come to what was wanted.
fn otherwise(view: &ChangeDetailView, ordered: Ordered<'_>) -> Failure {
    let ChangeView { id, state, .. } = &view.change;
    let why = view
        .change
        .why
        .as_deref()
        .unwrap_or("its journal tells no reason");
    let why = cleaned(why);
    let look = format!("{} shows all of it", ordered.shows(*id));
    let failure = match state {
        ChangeState::Refused => {
            let message = format!("nothing was changed: {why}");
            Failure::new(exit::REFUSED, "change-refused", message).next(ordered.again())
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
            let again = ordered.doctor(&format!("undo {id}"));
            let (message, next) = match left(view) {
                Some(left) => (
                    format!("{left}: {why}"),
                    format!("set them as they are to be; {look}, and {again} tries again"),
                ),
                None => (
                    format!("all is set as before, but not all who read files know it: {why}"),
                    format!("{again} tells them again; {look}"),
                ),
            };
            Failure::new(exit::PARTIAL, "in-doubt", message).next(next)
        }
        _ => Failure::error(format!("change {id} came to no end that is known: {why}")).next(look),
    };
    failure.with("change", view)
}

/// What is neither as before nor as it was to be; `None` if all is.
fn left(view: &ChangeDetailView) -> Option<String> {
    let is_left = |state: ChangeStepState| state == ChangeStepState::Left;
    let found = |found: &Option<String>| cleaned(found.as_deref().unwrap_or("not known"));
    let steps = view.steps.iter().filter(|step| is_left(step.state));
    let steps = steps.map(|step| format!("{} is {}", cleaned(&step.setting), found(&step.found)));
    let files = view.files.iter().filter(|file| is_left(file.state));
    let files = files.map(|file| format!("{}: {}", cleaned(&file.file), found(&file.found)));
    let (steps, files): (Vec<String>, Vec<String>) = (steps.collect(), files.collect());
    let count = match (steps.len(), files.len()) {
        (0, 0) => return None,
        (steps, 0) => counted(steps, "setting"),
        (0, files) => counted(files, "file"),
        (steps, files) => format!(
            "{} and {}",
            counted(steps, "setting"),
            counted(files, "file")
        ),
    };
    Some(format!(
        "{count} left alone, as something else has changed them: {}",
        [steps, files].concat().join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use drover_api::{
        ChangeFileView, ChangeLastingHow, ChangeLastingView, ChangeNotKept, ChangeStepView,
        ErrorCode, Refusal,
    };

    use super::*;

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
                files: 0,
                paths: 2,
                opened: 0,
                sizes: 0,
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
            not_opened: Vec::new(),
            not_measured: Vec::new(),
            files: Vec::new(),
            by_hand: Vec::new(),
            not_kept: Vec::new(),
        }
    }

    /// The same of one that was to last.
    fn lasting(state: ChangeState) -> ChangeDetailView {
        let mut view = view(state);
        view.change.files = 1;
        view.files = vec![ChangeFileView {
            by: "sysctl.d".into(),
            file: "/etc/a".into(),
            goes: Vec::new(),
            comes: vec!["x = 1".into()],
            state: ChangeStepState::Left,
            found: Some("there is a file".into()),
        }];
        view
    }

    #[test]
    fn what_was_to_last_is_told_with_what_does_not_and_what_is_left_to_people() {
        let mut view = lasting(ChangeState::Applied);
        view.by_hand = vec![ChangeLastingView {
            by: "NetworkManager".into(),
            how: ChangeLastingHow::Commands,
            file: None,
            part: None,
            lines: vec!["nmcli x".into()],
            by_hand: Some("no commands are run".into()),
        }];
        view.not_kept = vec![ChangeNotKept {
            step: "echo 1 > /q".into(),
            why: "nobody keeps it".into(),
        }];
        let text = applied(&view, Ordered::Doctor).unwrap() + &kept(&view);
        assert!(
            text.contains("takes it back; a restart of the host takes back what does not last\n"),
            "{text}"
        );
        let (_, text) = text.split_once("does not last\n").unwrap();
        insta::assert_snapshot!(text, @r"
        written, for sysctl.d: /etc/a
        For people to do, since no commands are run; NetworkManager:
          nmcli x
        This does not last: echo 1 > /q, because nobody keeps it
        ");
        let nothing = self::view(ChangeState::Applied);
        assert_eq!(
            kept(&nothing),
            "lasts: all that it takes was there already\n"
        );
        let undone = undone(&lasting(ChangeState::Undone)).unwrap();
        assert!(
            format!("{undone:?}").contains("1 setting and 1 file as before"),
            "{undone:?}"
        );
    }

    #[test]
    fn what_is_the_kernels_own_to_set_is_told_with_the_reason() {
        let mut view = view(ChangeState::Applied);
        view.change.steps = 3;
        view.steps[0].state = ChangeStepState::NotDone;
        view.steps[0].found = Some("the kernel spreads it by itself".into());
        let text = applied(&view, Ordered::Doctor).unwrap();
        let begins = "applied: 2 settings; 1 passed by, because the kernel spreads it by itself; other hosts";
        assert!(text.starts_with(begins), "{text}");
    }

    #[test]
    fn a_file_that_was_left_alone_is_named_beside_settings() {
        let failure = applied(&lasting(ChangeState::InDoubt), Ordered::Doctor).unwrap_err();
        let message = failure.message();
        assert!(
            message.starts_with("1 setting and 1 file left alone"),
            "{message}"
        );
        assert!(message.contains("/etc/a: there is a file"), "{message}");
    }

    #[test]
    fn a_reader_that_was_not_told_is_named_where_nothing_was_left_alone() {
        let mut view = view(ChangeState::InDoubt);
        view.change.set = 0;
        view.steps[0].state = ChangeStepState::TakenBack;
        view.change.why = Some("it was to be undone; NetworkManager has not answered".into());
        let failure = applied(&view, Ordered::Doctor).unwrap_err();
        assert_eq!(failure.exit(), exit::PARTIAL);
        let message = failure.message();
        assert!(
            message.starts_with("all is set as before, but not all who read files know it: it was"),
            "{message}"
        );
        assert!(failure.advice().unwrap().contains("tells them again"));
    }

    #[test]
    fn every_end_has_its_exit_code_and_says_what_is_there() {
        let text = applied(&view(ChangeState::Applied), Ordered::Doctor).unwrap();
        assert!(
            text.contains("1 setting; other hosts are reached as before, over 2 paths"),
            "{text}"
        );
        let mut measured = view(ChangeState::Applied);
        measured.change.sizes = 1;
        let text = applied(&measured, Ordered::Doctor).unwrap();
        let sizes = "packets as large as they have to cross 1 path of migrations, both ways\n";
        assert!(text.contains(sizes), "{text}");
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
            let failure = applied(&view(state), Ordered::Doctor).unwrap_err();
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
        let link = Ordered::Link {
            host: &host,
            nic: "nic0",
        };
        view.not_measured = vec!["b: its agent\u{1b}[2J is away".into()];
        view.not_opened = vec!["the agent of b is older".into()];
        let text = applied(&view, link).unwrap();
        assert!(text.contains("nothing is proved by that"), "{text}");
        let away = "\nnot proved, how large packets cross: b: its agent";
        assert!(text.contains(away) && !text.contains('\u{1b}'), "{text}");
        let older = "\nnot proved, that others open connections to here: the agent of b is older\n";
        assert!(text.contains(older), "{text}");
        assert!(text.contains("` on b takes it back"), "{text}");
        view.change.paths = 3;
        view.change.opened = 2;
        let text = applied(&view, link).unwrap();
        let both = "over 3 paths, and open connections to this one over 2 of them;";
        assert!(text.contains(both), "{text}");
    }

    #[test]
    fn advice_about_another_hosts_link_names_that_host_and_its_own_command() {
        let host = "b".parse().unwrap();
        let link = Ordered::Link {
            host: &host,
            nic: "nic0",
        };
        for (state, advice) in [
            (ChangeState::Refused, "`drover nic show b nic0` shows"),
            (ChangeState::RolledBack, "` on b shows all of it"),
            (ChangeState::InDoubt, "` on b tries again"),
        ] {
            let failure = applied(&view(state), link).unwrap_err();
            let next = failure.advice().unwrap();
            assert!(next.contains(advice), "{next}");
        }
    }

    #[test]
    fn an_answer_that_did_not_come_leaves_open_what_became_of_the_order() {
        let host = "b".parse().unwrap();
        let link = Ordered::Link {
            host: &host,
            nic: "nic0",
        };
        let late = || ClientError::Timeout {
            endpoint: "a".into(),
            call: "POST /v1/hosts/b/links".into(),
            after: Duration::from_secs(25),
        };
        let failure = not_begun(late(), link);
        assert_eq!(failure.exit(), exit::NO_AGENT);
        assert!(failure.message().starts_with("it is not known whether"));
        let next = failure.advice().unwrap();
        assert!(next.contains("takes itself back"), "{next}");
        assert!(next.contains("`drover doctor changes` on b"), "{next}");
        // Whoever says no has begun nothing, and whoever was asked in between tells more than this command knows.
        let refused = Refusal::new(ErrorCode::NotDrained, "it has guests").next("drain it");
        assert_eq!(not_begun(refused.into(), link).exit(), exit::REFUSED);
        let open = Refusal::new(ErrorCode::OutcomeUnknown, "not known").next("look there");
        let failure = not_begun(open.into(), link);
        assert_eq!(
            (failure.exit(), failure.advice()),
            (exit::NO_AGENT, Some("look there"))
        );
    }
}
