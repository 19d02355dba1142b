//! Findings, the worst first, each with all that there is to say of it.

use super::blocks::{Block, Text};
use crate::folded::Folded;
use crate::report::Report;

pub fn blocks(report: &Report) -> Vec<Block> {
    let mut blocks = vec![Block::Section(Text::of("Findings"))];
    if report.findings.is_empty() {
        blocks.push(Block::Words(Text::of("Nothing was found.")));
    }
    blocks.extend(report.folded().iter().flat_map(of_one));
    blocks
}

fn of_one(folded: &Folded<'_>) -> Vec<Block> {
    let finding = folded.finding;
    let found = &finding.found;
    let title = format!("{}: {}", folded.subject(), finding.rule);
    let mut named = vec![
        ("Read", Text::of(folded.read())),
        ("Expected", Text::of(&found.expected)),
        ("Why", Text::of(&found.why)),
    ];
    if let Some(cost) = &found.cost {
        named.push(("Cost", Text::of(cost)));
    }
    named.push(("Class", Text::of(finding.disruption)));
    if let Some(by_hand) = &found.by_hand {
        named.push(("By hand", Text::of(by_hand)));
    }
    if !folded.others.is_empty() {
        let others: Vec<&str> = folded.others.iter().copied().collect();
        named.push(("Others", Text::of(others.join(", "))));
    }
    let mut blocks = vec![
        Block::Finding(found.severity, Text::of(title)),
        Block::Named(named),
    ];
    if let Some(change) = &found.change {
        let done = change.steps.iter().map(Text::of);
        blocks.push(Block::Lines("What does it", done.collect()));
        let undone = change.steps.iter().rev().map(|step| Text::of(step.undo()));
        blocks.push(Block::Lines("What takes it back", undone.collect()));
    }
    if !found.lines.is_empty() {
        let shown: Vec<String> = found.lines.iter().map(ToString::to_string).collect();
        let lines = shown.iter().flat_map(|line| line.lines()).map(Text::of);
        blocks.push(Block::Lines("In the guest's definition", lines.collect()));
    }
    let sources = finding.documentation.iter();
    let sources = sources.map(|source| (Text::of(&source.said), source.address.clone()));
    blocks.push(Block::Sources(sources.collect()));
    blocks
}
