//! Paths between hosts: who reaches whom, and how.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{Block, Text};
use crate::facts::{Crossing, Fact, Path};

pub fn blocks(paths: &[Path]) -> Vec<Block> {
    let mut blocks = vec![Block::Section(Text::of("Paths"))];
    if paths.is_empty() {
        blocks.push(Block::Words(Text::of("No path was asked.")));
        return blocks;
    }
    blocks.push(Block::Words(Text::of(
        "From each host to each other one: how many of its paths are answered, the largest packet that crosses all of these, and the longest round trip.",
    )));
    blocks.push(matrix(paths));
    blocks.push(Block::Part(Text::of("Each path")));
    let head = [
        "From",
        "To",
        "Answered",
        "Largest there",
        "Largest back",
        "Round trip",
    ];
    let loaded = paths.iter().any(|path| path.carried.is_some());
    let head = head.into_iter().chain(loaded.then_some("Carries"));
    blocks.push(Block::Table {
        head: head.map(Text::of).collect(),
        rows: paths.iter().map(|path| row(path, loaded)).collect(),
    });
    blocks
}

fn matrix(paths: &[Path]) -> Block {
    let mut between: BTreeMap<(&str, &str), Vec<&Path>> = BTreeMap::new();
    let mut hosts = BTreeSet::new();
    for path in paths {
        let ends = (path.near.host.as_str(), path.far.host.as_str());
        hosts.extend([ends.0, ends.1]);
        between.entry(ends).or_default().push(path);
    }
    let row = |near: &&str| {
        let cells = hosts.iter().map(|far| {
            between
                .get(&(*near, *far))
                .map_or_else(String::new, |all| cell(all))
        });
        [format!("from {near}")]
            .into_iter()
            .chain(cells)
            .map(Text::of)
            .collect()
    };
    let to = hosts.iter().map(|far| Text::of(format!("to {far}")));
    Block::Table {
        head: [Text::of("")].into_iter().chain(to).collect(),
        rows: hosts.iter().map(row).collect(),
    }
}

/// The worst of several paths.
fn cell(paths: &[&Path]) -> String {
    let answered = paths.iter().filter(|path| is_answered(path));
    let mut said = format!("{} of {}", answered.count(), paths.len());
    let sizes = paths
        .iter()
        .flat_map(|path| [path.there.known(), path.back.known()])
        .flatten();
    if let Some(least) = sizes.map(|crossing| crossing.size).min() {
        said.push_str(&format!(", {least} bytes"));
    }
    if let Some(longest) = paths
        .iter()
        .filter_map(|path| path.round_trip.known())
        .max()
    {
        said.push_str(&format!(", {longest} µs"));
    }
    said
}

fn is_answered(path: &Path) -> bool {
    path.answers
        .known()
        .is_some_and(|answers| answers.answered > 0)
}

fn row(path: &Path, loaded: bool) -> Vec<Text> {
    let end = |end: &crate::facts::PathEnd| format!("{} {} ({})", end.host, end.nic, end.address);
    let answered = match (&path.refused, &path.answers) {
        (Some(why), _) => format!("nothing was sent: {why}"),
        (None, Fact::Known(answers)) => format!("{} of {}", answers.answered, answers.asked),
        (None, Fact::Unknown(why)) => format!("not known, because {why}"),
    };
    let size = |fact: &Fact<Crossing>| match fact {
        Fact::Known(Crossing { size, vanish: true }) => format!("{size} bytes, larger ones vanish"),
        Fact::Known(Crossing {
            size,
            vanish: false,
        }) => format!("{size} bytes"),
        Fact::Unknown(_) => "–".to_owned(),
    };
    let trip = path
        .round_trip
        .known()
        .map_or_else(|| "–".to_owned(), |trip| format!("{trip} µs"));
    let row = [
        end(&path.near),
        end(&path.far),
        answered,
        size(&path.there),
        size(&path.back),
        trip,
    ];
    let row = row.into_iter().chain(loaded.then(|| carried(path)));
    row.map(Text::of).collect()
}

fn carried(path: &Path) -> String {
    let known = path.carried.as_ref().and_then(Fact::known);
    known.map_or_else(
        || "–".to_owned(),
        |carried| format!("{} Mbit/s", carried.rate / 1_000_000),
    )
}
