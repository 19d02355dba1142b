//! Plans and changes for a person.

use std::fmt::Write as _;
use std::path::Path;

use drover_api::{ChangeDetailView, ChangeLeftOut, ChangePlanView, ChangeView};
use drover_plan::Text;
use jiff::Timestamp;

use crate::show::{age, or_dash, row, table, word};

/// A plan with what is not in it, all of which can be read as a plan.
pub fn planned(view: &ChangePlanView) -> String {
    let mut text = match &view.plan {
        Some(plan) => format!("{}\n", plan.trim_end()),
        None => "nothing would be changed\n".to_owned(),
    };
    if !view.left_out.is_empty() {
        text.push_str("\n# Found, and not in it:\n");
    }
    for left in &view.left_out {
        let _ = writeln!(text, "#   {}", left_out(left));
    }
    text
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
    text + &table(&rows)
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
        }
    }

    #[test]
    fn what_is_not_in_a_plan_stands_below_it_as_comments() {
        insta::assert_snapshot!(planned(&view(Some("host = \"a\"\n\n"))), @r#"
        host = "a"

        # Found, and not in it:
        #   nic-ring of nic0, because it may bounce the link
        "#);
        assert!(planned(&view(None)).starts_with("nothing would be changed\n"));
        insta::assert_snapshot!(written(&view(Some("")), Path::new("f")), @r"
        f: 1 change, 2 settings; read it, then `drover doctor apply f`
        not in it: nic-ring of nic0, because it may bounce the link
        ");
    }
}
