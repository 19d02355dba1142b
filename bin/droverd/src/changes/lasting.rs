//! What makes a plan last beyond a restart: what of it is written here, and what is not, because.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::HEXLOWER;
use drover_api::{ChangeLastingHow, ChangeLastingView, ChangeNotKept, ErrorCode, Refusal};
use drover_change::{LastingFile, Lasts, Plan};
use drover_host::network_manager;
use drover_tune::Step;
use drover_tune::lasting::{ByHand, How, Lasting, NotKept, Owners, Rewrite, lasting, rewrites};
use drover_types::with_sources;
use sha2::{Digest as _, Sha256};

use super::ROOT;

/// What makes a plan that fits.
const ANEW: &str = "`drover doctor plan --lasting -o FILE` on this host makes a plan that fits; of changes that were taken out of one \
    their lines have to be taken out below [lasting], too. Without --persist it is applied until the next restart";

/// What makes a plan last on this host, as it is now.
pub struct Found {
    /// All that there is to do.
    told: Vec<Lasting>,
    lasts: Lasts,
}

impl Found {
    /// By who sets what now, and by what their files say.
    pub async fn of(plan: &Plan) -> Self {
        let mut nics: Vec<&str> = plan.steps().filter_map(nic).collect();
        nics.sort_unstable();
        nics.dedup();
        let root = Path::new(ROOT);
        let mut owners = tokio::task::block_in_place(|| drover_host::owners(root, &nics));
        if owners.has_profiles() {
            let version = network_manager::version().await;
            owners.network_manager = version.map_err(|error| with_sources(&error));
        }
        tokio::task::block_in_place(|| Self::by(plan, &owners))
    }

    fn by(plan: &Plan, owners: &Owners) -> Self {
        let root = Path::new(ROOT);
        let (told, not_kept) = lasting(plan.steps(), owners);
        let look =
            |path: &str| drover_host::place(root, path).map_err(|error| with_sources(&error));
        let (files, by_hand) = rewrites(told.clone(), look);
        let lasts = Lasts {
            files,
            by_hand,
            not_kept,
        };
        Self { told, lasts }
    }

    /// What a plan says of its files.
    pub fn files(&self) -> Vec<LastingFile> {
        self.lasts.files.iter().map(of_plan).collect()
    }

    /// All of it as it is shown, and what nobody keeps.
    pub fn shown(self) -> (Vec<ChangeLastingView>, Vec<ChangeNotKept>) {
        let why = |what: &Lasting| {
            let mut by_hand = self.lasts.by_hand.iter();
            let found = by_hand.find(|one| one.what == *what);
            found.map(|one| one.why.clone())
        };
        let told = self.told.iter().map(|what| shown(what, why(what)));
        (told.collect(), not_kept(&self.lasts.not_kept))
    }
}

/// What is written of a plan that says what makes it last; it is what it says.
///
/// # Errors
/// Something else makes it last by now.
pub async fn as_planned(plan: &Plan, said: &[LastingFile]) -> Result<Lasts, Refusal> {
    let found = Found::of(plan).await;
    match differs(said, &found.files()) {
        None => Ok(found.lasts),
        Some(why) => {
            let message = format!("what makes it last is not what the plan says: {why}");
            Err(Refusal::new(ErrorCode::ChangePlanUnusable, message).next(ANEW))
        }
    }
}

/// A plan that was made without.
pub fn not_planned() -> Refusal {
    let message = "the plan does not say what makes it last";
    Refusal::new(ErrorCode::ChangePlanUnusable, message).next(ANEW)
}

fn nic(step: &Step) -> Option<&str> {
    match step {
        Step::Nic { nic, .. } => Some(nic),
        Step::File { .. } => None,
    }
}

fn of_plan(rewrite: &Rewrite) -> LastingFile {
    let (goes, comes) = rewrite.lines();
    LastingFile {
        by: rewrite.by.clone(),
        file: rewrite.path.clone(),
        was: digest(rewrite.before.as_deref()),
        goes,
        comes,
    }
}

/// As `sha256sum` tells it.
fn digest(before: Option<&str>) -> String {
    before.map_or_else(
        || LastingFile::NONE.to_owned(),
        |text| format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(text))),
    )
}

/// Why what a plan says is not what is to be written now.
fn differs(said: &[LastingFile], now: &[LastingFile]) -> Option<String> {
    let by_path = |files: &[LastingFile]| -> BTreeMap<String, LastingFile> {
        let named = files.iter().map(|file| (file.file.clone(), file.clone()));
        named.collect()
    };
    let (of_plan, of_host) = (by_path(said), by_path(now));
    for (path, said) in &of_plan {
        let why = match of_host.get(path) {
            None => "is not to be written, or cannot be".to_owned(),
            Some(now) if now.was != said.was => {
                format!("was changed since the plan was made: it is {}", now.was)
            }
            Some(now) if now != said => "would get other lines".to_owned(),
            Some(_) => continue,
        };
        return Some(format!("{path} {why}"));
    }
    let more = of_host.keys().find(|path| !of_plan.contains_key(*path));
    let twice = said.len() > of_plan.len();
    match more {
        Some(path) => Some(format!("{path} is to be written as well")),
        None => twice.then(|| "it names a file twice".to_owned()),
    }
}

/// What people have to do, as it is shown.
pub fn by_hand(all: &[ByHand]) -> Vec<ChangeLastingView> {
    let one = |one: &ByHand| shown(&one.what, Some(one.why.clone()));
    all.iter().map(one).collect()
}

/// What nobody keeps, as it is shown.
pub fn not_kept(all: &[NotKept]) -> Vec<ChangeNotKept> {
    let one = |one: &NotKept| ChangeNotKept {
        step: one.step.clone(),
        why: one.why.clone(),
    };
    all.iter().map(one).collect()
}

fn shown(what: &Lasting, by_hand: Option<String>) -> ChangeLastingView {
    let (how, file, part, lines) = match &what.how {
        How::Choice { command, .. } if by_hand.is_some() => {
            let command = std::slice::from_ref(command);
            (ChangeLastingHow::Commands, None, None, command)
        }
        How::File { path, lines } | How::Choice { path, lines, .. } => {
            (ChangeLastingHow::File, Some(path), None, &lines[..])
        }
        How::Lines { path, part, lines } => (
            ChangeLastingHow::Lines,
            Some(path),
            part.clone(),
            &lines[..],
        ),
        How::Commands(lines) => (ChangeLastingHow::Commands, None, None, &lines[..]),
    };
    ChangeLastingView {
        by: what.by.to_string(),
        how,
        file: file.cloned(),
        part,
        lines: lines.to_vec(),
        by_hand,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, was: &str, line: &str) -> LastingFile {
        LastingFile {
            by: "sysctl.d".into(),
            file: path.into(),
            was: was.into(),
            goes: Vec::new(),
            comes: vec![line.into()],
        }
    }

    #[test]
    fn a_plan_whose_files_are_others_by_now_says_which_and_in_which_way() {
        let said = [
            file("/etc/a", "none", "x = 1"),
            file("/etc/b", "none", "y = 1"),
        ];
        let differs = |now: &[LastingFile]| differs(&said, now);
        assert_eq!(differs(&said), None);
        let other_way_round = [said[1].clone(), said[0].clone()];
        assert_eq!(differs(&other_way_round), None);
        for (now, why) in [
            (
                file("/etc/b", "sha256:00", "y = 1"),
                "/etc/b was changed since the plan was made: it is sha256:00",
            ),
            (
                file("/etc/b", "none", "y = 2"),
                "/etc/b would get other lines",
            ),
            (
                file("/etc/c", "none", "y = 1"),
                "/etc/b is not to be written, or cannot be",
            ),
        ] {
            assert_eq!(differs(&[said[0].clone(), now]).as_deref(), Some(why));
        }
        let more = file("/etc/c", "none", "z = 1");
        let why = differs(&[&said[..], &[more]].concat());
        assert_eq!(why.as_deref(), Some("/etc/c is to be written as well"));
        let twice = [&said[..], &said[..1]].concat();
        assert!(super::differs(&twice, &said).is_some());
    }

    #[test]
    fn a_choice_that_is_not_written_is_shown_as_the_command_that_makes_it() {
        let what = Lasting {
            by: "tuned".into(),
            how: How::Choice {
                path: "/etc/tuned/active_profile".into(),
                lines: vec!["mine-drover".into()],
                of: "/etc/tuned/mine-drover/tuned.conf".into(),
                command: "tuned-adm profile mine-drover".into(),
            },
            because: None,
        };
        let written = shown(&what, None);
        assert_eq!(written.how, ChangeLastingHow::File);
        assert_eq!(written.lines, ["mine-drover"]);
        let by_hand = shown(&what, Some("it is a link".into()));
        assert_eq!(
            (by_hand.how, by_hand.file),
            (ChangeLastingHow::Commands, None)
        );
        assert_eq!(by_hand.lines, ["tuned-adm profile mine-drover"]);
    }

    #[test]
    fn what_a_file_is_is_told_as_others_tell_it() {
        // printf '' | sha256sum
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest(Some("")), empty);
        assert_eq!(digest(None), "none");
    }
}
