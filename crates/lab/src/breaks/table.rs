//! What the doctor found, as a person reads it.

use std::fmt::Write as _;

use super::look::Look;
use super::trial::{Found, LeftOut, Trials};
use crate::compare::{Spread, aligned, spread};

/// All of it, and below it what was found instead of what is wrong.
#[must_use]
pub fn table(trials: &Trials) -> String {
    let columns = ["wrong", "how", "rule", "of", "found", "ms"];
    let mut rows = vec![columns.map(str::to_owned)];
    let mut otherwise = String::new();
    for clean in &trials.clean {
        let none = |look: &Look| look.findings == 0;
        rows.push([
            format!("nothing: {}", clean.what),
            String::new(),
            String::new(),
            String::new(),
            right(&clean.looks, none),
            milliseconds(&clean.looks),
        ]);
        otherwise += &told_otherwise(&clean.what, &clean.looks, none);
    }
    for found in &trials.breaks {
        let is_right = |look: &Look| found.is_found_by(look);
        let how = if found.written { "written" } else { "done" };
        let Found {
            name, rule, about, ..
        } = found;
        rows.push([
            name.clone(),
            how.to_owned(),
            rule.clone(),
            about.clone(),
            right(&found.looks, is_right),
            milliseconds(&found.looks),
        ]);
        otherwise += &told_otherwise(name, &found.looks, is_right);
    }
    let mut text = aligned(&rows);
    text += "found: how often the first finding was that rule's of that, or there was none where nothing is wrong.\n\
             ms: the doctor from its start to its end, median (smallest-largest).\n\
             written: into what was captured of a host, since no namespace has it.\n";
    let held = trials.breaks.iter().filter(|found| found.holds()).count();
    let _ = writeln!(text, "\n{held} of {} found", trials.breaks.len());
    for (rule, read) in trials.of_machine.each() {
        let _ = writeln!(
            text,
            "this machine itself has {rule}, which is left out of what is found: {read}"
        );
    }
    for LeftOut { name, because } in &trials.left_out {
        let _ = writeln!(text, "{name} was not tried, because {because}");
    }
    text + &otherwise
}

fn right(looks: &[Look], is_right: impl Fn(&Look) -> bool) -> String {
    let count = looks.iter().filter(|look| is_right(look)).count();
    format!("{count}/{}", looks.len())
}

/// The first findings that are not the right ones.
fn told_otherwise(what: &str, looks: &[Look], is_right: impl Fn(&Look) -> bool) -> String {
    let wrong = looks.iter().filter(|look| !is_right(look));
    let lines = wrong.map(|look| {
        let of = |part: &Option<String>| part.clone().unwrap_or_default();
        match &look.first {
            None => format!("{what}: nothing was found\n"),
            Some(rule) => format!(
                "{what}: the first finding is {rule} of {}: {}\n",
                of(&look.subject),
                of(&look.read)
            ),
        }
    });
    lines.collect()
}

fn milliseconds(looks: &[Look]) -> String {
    spread(Spread::of(looks.iter().map(|look| look.took_ms)), 1.0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_instead_is_told_below() {
        let look = |first: Option<&str>| Look {
            first: first.map(str::to_owned),
            subject: first.map(|_| "b nic0".to_owned()),
            read: first.map(|_| "64".to_owned()),
            findings: first.iter().count(),
            took_ms: 20.0,
        };
        let right = |look: &Look| look.first.as_deref() == Some("nic-ring");
        let looks = [look(Some("nic-ring")), look(Some("pci-slot")), look(None)];
        assert_eq!(super::right(&looks, right), "1/3");
        let told = told_otherwise("ring", &looks, right);
        assert_eq!(
            told,
            "ring: the first finding is pci-slot of b nic0: 64\nring: nothing was found\n"
        );
    }
}
