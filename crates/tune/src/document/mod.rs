//! A report to be handed to others: one document, as Markdown or as HTML.
//!
//! ```text
//! hosts, report, paths ─▶ blocks ─┬▶ Markdown
//!                                 └▶ HTML, in one file and without scripts
//! ```
//!
//! # Invariant
//! Whatever hosts, switches and guests call themselves is text in it, and means nothing to what shows it.

mod blocks;
mod findings;
mod hosts;
mod html;
mod markdown;
mod paths;
mod rest;

use blocks::{Block, Text};

use crate::facts::{Host, Path};
use crate::report::Report;
use crate::rules::RULES;

/// What a document is made of.
#[derive(Debug, Clone, Copy)]
pub struct Document<'d> {
    /// Hosts that were looked at.
    pub hosts: &'d [Host],
    /// What the rules say of them.
    pub report: &'d Report,
    /// Paths between them, if they were asked.
    pub paths: Option<&'d [Path]>,
    /// What could not be looked at as a whole, and why.
    pub missing: &'d [(String, String)],
    /// When it was made.
    pub at: &'d str,
    /// The version of what made it.
    pub version: &'d str,
}

impl Document<'_> {
    /// As Markdown (CommonMark, with the tables of GitHub's).
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown::written(&self.blocks())
    }

    /// As one HTML file that loads nothing.
    #[must_use]
    pub fn html(&self) -> String {
        html::written(&self.title(), &self.blocks())
    }

    fn title(&self) -> String {
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        match names[..] {
            [] => "What costs migrations".to_owned(),
            _ => format!("What costs migrations: {}", names.join(", ")),
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = vec![Block::Title(Text::of(self.title()))];
        blocks.push(Block::Words(Text::of(format!(
            "Made {} by drover doctor, version {}, which changed nothing.",
            self.at, self.version
        ))));
        blocks.extend(self.summary());
        blocks.extend(findings::blocks(self.report));
        if let Some(paths) = self.paths {
            blocks.extend(paths::blocks(paths));
        }
        blocks.push(Block::Section(Text::of("Hosts")));
        blocks.extend(self.hosts.iter().flat_map(hosts::blocks));
        blocks.extend(rest::blocks(self.report));
        blocks
    }

    fn summary(&self) -> Vec<Block> {
        let report = self.report;
        let counts = report.counts();
        let found = counts
            .iter()
            .map(|(severity, count)| (severity.to_string(), *count));
        let others = [
            ("as it should be".to_owned(), report.right.len()),
            ("skipped".to_owned(), report.skipped.len()),
            ("rules".to_owned(), RULES.len()),
        ];
        let rows = found
            .chain(others)
            .map(|(what, count)| vec![Text::of(what), Text::of(count)]);
        let mut blocks = vec![
            Block::Section(Text::of("Summary")),
            Block::Table {
                head: ["What", "How often"].map(Text::of).into(),
                rows: rows.collect(),
            },
        ];
        if !self.missing.is_empty() {
            blocks.push(Block::Words(Text::of("Not looked at:")));
            let missing = self
                .missing
                .iter()
                .map(|(whom, why)| Text::of(format!("{whom}: {why}")));
            blocks.push(Block::List(missing.collect()));
        }
        blocks
    }
}
