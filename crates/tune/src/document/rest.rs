//! What was skipped, and what is as it should be.

use std::collections::BTreeMap;

use super::blocks::{Block, Text};
use crate::report::Report;
use crate::rules::RULES;

pub fn blocks(report: &Report) -> Vec<Block> {
    let mut blocks = vec![Block::Section(Text::of("Skipped"))];
    if report.skipped.is_empty() {
        blocks.push(Block::Words(Text::of("Nothing.")));
    } else {
        blocks.push(Block::Words(Text::of(
            "What could not be looked at is neither found nor right.",
        )));
        blocks.push(skipped(report));
    }
    blocks.push(Block::Section(Text::of("As it should be")));
    let rows = RULES.iter().filter_map(|rule| {
        let right = report
            .right
            .iter()
            .filter(|right| right.rule == rule.name)
            .count();
        (right > 0).then(|| vec![Text::of(rule.name), Text::of(rule.wants), Text::of(right)])
    });
    blocks.push(Block::Table {
        head: ["Rule", "Wants", "How often"].map(Text::of).into(),
        rows: rows.collect(),
    });
    blocks
}

/// What has one reason stands together.
fn skipped(report: &Report) -> Block {
    let mut reasons: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for skipped in &report.skipped {
        let reason = (skipped.rule.as_str(), skipped.because.as_str());
        reasons
            .entry(reason)
            .or_default()
            .push(skipped.subject.to_string());
    }
    let rows = reasons.into_iter().map(|((rule, because), subjects)| {
        vec![
            Text::of(rule),
            Text::of(subjects.join(", ")),
            Text::of(because),
        ]
    });
    Block::Table {
        head: ["Rule", "Of", "Because"].map(Text::of).into(),
        rows: rows.collect(),
    }
}
