//! Plans and changes for a person.

use std::fmt::Write as _;
use std::path::Path;

use drover_api::{
    ChangeDetailView, ChangeFileView, ChangeLastingHow, ChangeLastingView, ChangeLeftOut,
    ChangeNotKept, ChangePlanView, ChangeView,
};
use drover_plan::Text;
use jiff::Timestamp;

use crate::show::{age, or_dash, row, table, word};

/// Said where there is no plan, with what none is made from.
const NOTHING: &str = "nothing would be changed: a plan is made from this host's own facts, and not from its guests, other hosts and the paths to \
                       them, of which `drover doctor --all --paths` tells\n";

/// A plan with what is not in it, all of which can be read as a plan.
pub fn planned(view: &ChangePlanView) -> String {
    let mut text = match &view.plan {
        Some(plan) => format!("{}\n", plan.trim_end()),
        None => NOTHING.to_owned(),
    };
    if !view.left_out.is_empty() {
        text.push_str("\n# Found, and not in it:\n");
    }
    for left in &view.left_out {
        let _ = writeln!(text, "#   {}", left_out(left));
    }
    let to_do = to_do(&view.lasting, &view.not_kept);
    if !to_do.is_empty() {
        text.push_str("\n# What `drover doctor apply --persist` does not make last:\n");
    }
    for line in to_do {
        let _ = writeln!(text, "# {line}");
    }
    text
}

/// What people have to do that all of a plan lasts, and what does not whatever they do, a line each.
pub fn to_do(lasting: &[ChangeLastingView], not_kept: &[ChangeNotKept]) -> Vec<String> {
    let mut said = Vec::new();
    for place in lasting {
        let Some(why) = &place.by_hand else { continue };
        let of_file = |what: &str| {
            let file = place.file.as_deref().unwrap_or_default();
            let part = place.part.as_ref();
            let part = part.map_or_else(String::new, |part| format!(", in {part}"));
            format!("; {what} {file}{part}")
        };
        let what = match place.how {
            ChangeLastingHow::File => of_file("the file"),
            ChangeLastingHow::Lines => of_file("lines of"),
            ChangeLastingHow::Commands => String::new(),
            ChangeLastingHow::Unknown => continue,
        };
        let by = &place.by;
        said.push(cleaned(&format!(
            "For people to do, since {why}; {by}{what}:"
        )));
        said.extend(place.lines.iter().map(|line| cleaned(&format!("  {line}"))));
    }
    said.extend(not_kept.iter().map(|one| {
        let (step, why) = (&one.step, &one.why);
        cleaned(&format!("This does not last: {step}, because {why}"))
    }));
    said
}

/// The same of one that is in a file.
pub fn written(view: &ChangePlanView, file: &Path) -> String {
    let file = file.display();
    let mut text = format!(
        "{file}: {}, {}; read it, then `drover doctor apply {file}`\n",
        counted(view.changes, "change"),
        counted(view.steps, "setting")
    );
    for left in &view.left_out {
        let _ = writeln!(text, "not in it: {}", left_out(left));
    }
    if view.lasting.iter().any(|place| place.by_hand.is_none()) {
        let _ = writeln!(
            text,
            "with `drover doctor apply {file} --persist` it lasts beyond a restart"
        );
    }
    if !to_do(&view.lasting, &view.not_kept).is_empty() {
        text.push_str("what that does not make last stands at the end of the file\n");
    }
    text
}

fn left_out(left: &ChangeLeftOut) -> String {
    let of = left.nic.as_ref().map(|nic| format!(" of {nic}"));
    let said = format!(
        "{}{}, because {}",
        left.rule,
        of.unwrap_or_default(),
        left.why
    );
    cleaned(&said)
}

/// What was applied, a line each.
pub fn list(changes: &[ChangeView]) -> String {
    if changes.is_empty() {
        return "nothing was applied on this host\n".to_owned();
    }
    let now = Timestamp::now();
    let mut rows = vec![row(&["ID", "STATE", "BEGAN", "SETTINGS", "UNDO", "RULES"])];
    rows.extend(changes.iter().map(|change| {
        vec![
            change.id.to_string(),
            word(&change.state),
            or_dash(change.began.map(|began| format!("{} ago", age(began, now)))),
            change.steps.to_string(),
            if change.can_be_undone { "yes" } else { "-" }.to_owned(),
            cleaned(&change.rules.join(" ")),
        ]
    }));
    table(&rows)
}

/// One of them, a line for each setting.
pub fn detail(view: &ChangeDetailView) -> String {
    let ChangeView { id, state, .. } = &view.change;
    let mut text = format!("change {id}: {}\n", word(state));
    if let Some(why) = &view.change.why {
        let _ = writeln!(text, "because {}", cleaned(why));
    }
    let mut rows = vec![row(&["SETTING", "FROM", "TO", "STATE", "FOUND"])];
    rows.extend(view.steps.iter().map(|step| {
        vec![
            cleaned(&step.setting),
            cleaned(&step.from),
            cleaned(&step.to),
            word(&step.state),
            cleaned(step.found.as_deref().unwrap_or_default()),
        ]
    }));
    text += &table(&rows);
    if !view.files.is_empty() {
        text.push('\n');
        text += &table(&files(&view.files));
    }
    for line in not_proved(view).chain(to_do(&view.by_hand, &view.not_kept)) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// What is not proved, and of which paths, a line for each.
pub fn not_proved(view: &ChangeDetailView) -> impl Iterator<Item = String> {
    let opened = view.not_opened.iter();
    let opened = opened.map(|why| ("that others open connections to here", why));
    let measured = view.not_measured.iter();
    let measured = measured.map(|why| ("how large packets cross", why));
    let all = opened.chain(measured);
    all.map(|(what, why)| format!("not proved, {what}: {}", cleaned(why)))
}

/// Files that it writes, a line for each.
fn files(files: &[ChangeFileView]) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["FILE", "BY", "LINES", "STATE", "FOUND"])];
    rows.extend(files.iter().map(|file| {
        vec![
            cleaned(&file.file),
            cleaned(&file.by),
            format!("-{} +{}", file.goes.len(), file.comes.len()),
            word(&file.state),
            cleaned(file.found.as_deref().unwrap_or_default()),
        ]
    }));
    rows
}

/// Words of a host, as they may be shown on a terminal.
pub fn cleaned(words: &str) -> String {
    Text::from(words.to_owned()).to_string()
}

/// Such as `1 path` and `2 paths`.
pub fn counted(count: usize, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(plan: Option<&str>) -> ChangePlanView {
        ChangePlanView {
            plan: plan.map(str::to_owned),
            changes: 1,
            steps: 2,
            left_out: vec![ChangeLeftOut {
                rule: "nic-ring".into(),
                nic: Some("nic0".into()),
                why: "it may bounce the link".into(),
            }],
            lasting: Vec::new(),
            not_kept: Vec::new(),
        }
    }

    #[test]
    fn what_a_plan_does_not_make_last_stands_below_it_as_comments() {
        let mut view = view(Some("host = \"a\"\n"));
        let place = |how, file: Option<&str>, part: Option<&str>, lines: &[&str]| {
            let owned = |word: &&str| (*word).to_owned();
            drover_api::ChangeLastingView {
                by: "somebody".into(),
                how,
                file: file.as_ref().map(owned),
                part: part.as_ref().map(owned),
                lines: lines.iter().map(owned).collect(),
                by_hand: Some("somebody has to".into()),
            }
        };
        let of_link = Some("[Link]");
        let written = drover_api::ChangeLastingView {
            by_hand: None,
            ..place(ChangeLastingHow::File, Some("/etc/w"), None, &["w = 1"])
        };
        view.lasting = vec![
            written,
            place(ChangeLastingHow::File, Some("/etc/a"), None, &["x = 1"]),
            place(ChangeLastingHow::Lines, Some("/etc/b"), of_link, &["y=1"]),
            place(ChangeLastingHow::Commands, None, None, &["z 1"]),
        ];
        view.not_kept = vec![drover_api::ChangeNotKept {
            step: "echo 1 > /q".into(),
            why: "nobody keeps it".into(),
        }];
        view.left_out.clear();
        insta::assert_snapshot!(planned(&view), @r#"
        host = "a"

        # What `drover doctor apply --persist` does not make last:
        # For people to do, since somebody has to; somebody; the file /etc/a:
        #   x = 1
        # For people to do, since somebody has to; somebody; lines of /etc/b, in [Link]:
        #   y=1
        # For people to do, since somebody has to; somebody:
        #   z 1
        # This does not last: echo 1 > /q, because nobody keeps it
        "#);
        let said = super::written(&view, Path::new("f"));
        assert!(said.contains("apply f --persist` it lasts"), "{said}");
        assert!(said.ends_with("at the end of the file\n"), "{said}");
    }

    #[test]
    fn what_is_not_in_a_plan_stands_below_it_as_comments() {
        insta::assert_snapshot!(planned(&view(Some("host = \"a\"\n\n"))), @r#"
        host = "a"

        # Found, and not in it:
        #   nic-ring of nic0, because it may bounce the link
        "#);
        assert!(planned(&view(None)).starts_with("nothing would be changed: a plan"));
        insta::assert_snapshot!(written(&view(Some("")), Path::new("f")), @r"
        f: 1 change, 2 settings; read it, then `drover doctor apply f`
        not in it: nic-ring of nic0, because it may bounce the link
        ");
    }
}
