//! Reports for a person.

use std::fmt::Write as _;

use drover_plan::Text;
use drover_tune::{Finding, RULES, Report, Rule, Severity};

use super::missing::Missing;
use crate::show::{row, table};

/// Columns that one line of a finding may take.
const COLUMNS: usize = 100;

/// One line for each finding, or for those of which one end is to blame, and what else there is to say.
pub fn report(report: &Report, with_skipped: bool, missing: &[Missing]) -> String {
    let mut said = String::new();
    if !report.findings.is_empty() {
        let mut rows = vec![row(&["", "WHERE", "RULE", "FOUND"])];
        rows.extend(report.folded().iter().map(|told| {
            vec![
                told.finding.found.severity.to_string(),
                clean(&told.subject()).to_string(),
                told.finding.rule.clone(),
                clean(&told.read()).to_string(),
            ]
        }));
        for line in table(&rows).lines() {
            let _ = writeln!(said, "{}", cut(line));
        }
        said.push('\n');
    }
    if with_skipped && !report.skipped.is_empty() {
        for skipped in &report.skipped {
            let (subject, because) = (clean(&skipped.subject), clean(&skipped.because));
            let _ = writeln!(
                said,
                "skipped {} of {subject}, because {because}",
                skipped.rule
            );
        }
        said.push('\n');
    }
    said.push_str(&not_looked_at(missing));
    let _ = writeln!(said, "{}", counted(report));
    if let Some(first) = report.findings.first() {
        let rule = &first.rule;
        let _ = writeln!(
            said,
            "the same command with `--explain {rule}` says more of it, and what to do"
        );
    }
    if !with_skipped && !report.skipped.is_empty() {
        let _ = writeln!(
            said,
            "the same command with `--skipped` says what could not be looked at, and why"
        );
    }
    said
}

fn cut(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.to_owned();
    }
    let kept: String = line.chars().take(COLUMNS - 1).collect();
    format!("{}…", kept.trim_end())
}

fn counted(report: &Report) -> String {
    let of: Vec<String> = report
        .counts()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| match (severity, count) {
            (Severity::Critical, _) | (_, 1) => format!("{count} {severity}"),
            _ => format!("{count} {severity}s"),
        })
        .collect();
    let found = match of.is_empty() {
        true => "nothing was found".to_owned(),
        false => format!("found: {}", of.join(", ")),
    };
    format!(
        "{found}; as it should be {} times, skipped {} times, by {} rules",
        report.right.len(),
        report.skipped.len(),
        RULES.len()
    )
}

/// All of one rule.
pub fn explained(rule: &Rule, report: &Report, missing: &[Missing]) -> String {
    let mut said = format!("{}: {}\nsource: {}\n", rule.name, rule.wants, rule.source);
    for address in rule
        .documentation()
        .iter()
        .filter_map(|it| it.address.as_ref())
    {
        let _ = writeln!(said, "        {address}");
    }
    for finding in report
        .findings
        .iter()
        .filter(|finding| finding.rule == rule.name)
    {
        let _ = write!(said, "\n{}", in_full(finding));
    }
    for skipped in report
        .skipped
        .iter()
        .filter(|skipped| skipped.rule == rule.name)
    {
        let because = clean(&skipped.because);
        let _ = writeln!(
            said,
            "\nskipped of {}, because {because}",
            clean(&skipped.subject)
        );
    }
    if let Some(verdict) = nothing_found(rule, report) {
        let _ = writeln!(said, "\n{verdict}");
    }
    said.push_str(&not_looked_at(missing));
    said
}

/// What is said of a rule that found nothing: how often all was right, or that nothing here is its matter; none where it found something, or
/// was skipped and nothing else.
fn nothing_found(rule: &Rule, report: &Report) -> Option<String> {
    if report.findings.iter().any(|it| it.rule == rule.name) {
        return None;
    }
    let right = report.right.iter().filter(|it| it.rule == rule.name);
    match right.count() {
        0 if report.skipped.iter().any(|it| it.rule == rule.name) => None,
        0 => Some("nothing was found: there is nothing here that it is about".to_owned()),
        right => Some(format!("nothing was found; as it should be {right} times")),
    }
}

/// Members that did not tell, and those that could not ask each other.
fn not_looked_at(missing: &[Missing]) -> String {
    let line = |one: &Missing| format!("not {}: {}: {}\n", one.to_do, one.whom, clean(&one.why));
    missing.iter().map(line).collect()
}

/// Words of another host, or of a file that somebody else wrote, as they may be shown on a terminal.
pub fn clean(words: &impl ToString) -> Text {
    Text::from(words.to_string())
}

/// All of one finding.
pub fn in_full(finding: &Finding) -> String {
    let found = &finding.found;
    let mut said = format!("{}: {}\n", found.severity, clean(&finding.subject));
    let mut line = |what: &str, text: &str| {
        let _ = writeln!(said, "  {what:<10}{}", clean(&text));
    };
    line("read", &found.read);
    line("expected", &found.expected);
    line("why", &found.why);
    if let Some(cost) = &found.cost {
        line("cost", cost);
    }
    line("class", &finding.disruption.to_string());
    for (what, text) in remedy(finding) {
        line(what, &text);
    }
    said
}

/// What makes a finding go, a line each, with what it is where that is not as in the line before: commands and what takes them back, what
/// people do, and what of a definition becomes what.
pub fn remedy(finding: &Finding) -> Vec<(&'static str, String)> {
    let found = &finding.found;
    let mut lines = Vec::new();
    for (at, step) in (0..).zip(found.change.iter().flat_map(|change| &change.steps)) {
        lines.push((if at == 0 { "change" } else { "" }, step.to_string()));
        lines.push(("", format!("undone by: {}", step.undo())));
    }
    let by_hand = found.by_hand.iter().cloned();
    lines.extend(by_hand.map(|by_hand| ("by hand", by_hand)));
    for changed in &found.lines {
        let text = changed.to_string();
        lines.extend(text.lines().map(|line| ("", line.to_owned())));
    }
    lines
}

/// What is looked at.
pub fn rules() -> String {
    let mut rows = vec![row(&["RULE", "WANTS"])];
    rows.extend(RULES.iter().map(|rule| row(&[rule.name, rule.wants])));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_rule_that_found_nothing_it_is_said_whether_it_looked() {
        let rule = &RULES[0];
        let subject = serde_json::json!({ "host": "a", "other": null, "nic": null });
        let right = serde_json::json!({ "rule": rule.name, "subject": subject });
        let skipped = serde_json::json!({ "rule": rule.name, "subject": subject, "because": "x" });
        let mut report = Report::default();
        let said = explained(rule, &report, &[]);
        assert!(said.ends_with("\n\nnothing was found: there is nothing here that it is about\n"));
        report.skipped = vec![serde_json::from_value(skipped).unwrap()];
        let said = explained(rule, &report, &[]);
        assert!(said.ends_with("\n\nskipped of a, because x\n"), "{said}");
        report.right = vec![serde_json::from_value(right).unwrap(); 2];
        let said = explained(rule, &report, &[]);
        assert!(said.ends_with("because x\n\nnothing was found; as it should be 2 times\n"));
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_at_100_columns_and_one_that_just_fits_is_not() {
        let line_of = |read: &str| {
            let finding = serde_json::json!({
                "rule": "nic-ring", "subject": { "host": "a", "other": null, "nic": "eth0" },
                "severity": "warning", "read": read, "expected": "", "why": "", "cost": null, "change": null, "by_hand": null,
            });
            let report = Report {
                findings: vec![serde_json::from_value(finding).unwrap()],
                ..Report::default()
            };
            let said = super::report(&report, false, &[]);
            said.lines().nth(1).unwrap().to_owned()
        };
        let before = "warning  a eth0  nic-ring  ";
        // Letters count, and not their bytes.
        let fits = "µ".repeat(COLUMNS - before.len());
        assert_eq!(line_of(&fits), format!("{before}{fits}"));
        let cut = line_of(&format!("{fits}µ"));
        assert_eq!(cut.chars().count(), COLUMNS);
        assert!(cut.starts_with(before) && cut.ends_with("µ…"), "{cut}");
    }
}
