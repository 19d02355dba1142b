//! How a migration proceeds, for a person at a terminal.

use drover_api::{LaneState, MigrationPhase, MigrationView, PathView};
use drover_types::ByteRate;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::limits;
use crate::show::{milliseconds, word};

/// A progress bar with a line for each path below it. Silent when stderr is no terminal.
pub struct Progress {
    all: MultiProgress,
    bar: ProgressBar,
    paths: Vec<ProgressBar>,
}

impl Progress {
    /// A bar that shows nothing yet; `quiet` never does.
    pub fn new(quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let all = MultiProgress::with_draw_target(target);
        let bar = all.add(ProgressBar::new(1));
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:24}] {percent:>3}% {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self {
            all,
            bar,
            paths: Vec::new(),
        }
    }

    /// Shows how far a migration is.
    pub fn show(&mut self, view: &MigrationView) {
        let (done, total) = position(view);
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.set_prefix(format!(
            "{} {} > {}",
            view.vm, view.source, view.destination
        ));
        self.bar.set_message(message(view));
        let lines = path_lines(view);
        while self.paths.len() < lines.len() {
            let line = self.all.add(ProgressBar::new(1));
            if let Ok(style) = ProgressStyle::with_template("  {msg}") {
                line.set_style(style);
            }
            self.paths.push(line);
        }
        for (line, text) in self.paths.iter().zip(lines) {
            line.set_message(text);
        }
    }

    /// Says something above the bar.
    pub fn say(&self, text: &str) {
        if self.all.is_hidden() {
            eprintln!("{text}");
        } else {
            self.all.suspend(|| eprintln!("{text}"));
        }
    }

    /// Takes it all away.
    pub fn end(&self) {
        for line in &self.paths {
            line.finish_and_clear();
        }
        self.bar.finish_and_clear();
    }
}

/// How much of the memory is there, and all of it; at least 1, as a bar of 0 shows nothing.
fn position(view: &MigrationView) -> (u64, u64) {
    let total = view.bytes.total.0.max(1);
    let done = match view.phase {
        MigrationPhase::HandingOff | MigrationPhase::Completed => total,
        _ if view.bytes.transferred.0 == 0 => 0,
        _ => total.saturating_sub(view.bytes.remaining.0),
    };
    (done, total)
}

fn message(view: &MigrationView) -> String {
    let mut parts = vec![word(&view.phase)];
    if view.bytes.transferred.0 > 0 {
        parts.push(format!("{} sent", view.bytes.transferred));
    }
    if view.round > 1 {
        parts.push(format!("round {}", view.round));
    }
    if view.rate > ByteRate(0) {
        parts.push(view.rate.to_string());
    }
    if let Some(dirty) = view.dirty_rate.filter(|rate| *rate > ByteRate(0)) {
        parts.push(format!("dirty {dirty}"));
    }
    if let Some(left) = view.time_left_ms {
        parts.push(format!("{} left", milliseconds(left)));
    }
    parts.join(", ")
}

fn path_lines(view: &MigrationView) -> Vec<String> {
    let mut lines: Vec<_> = view
        .paths
        .iter()
        .take(limits::PATH_LINES)
        .map(path_line)
        .collect();
    let more = view.paths.len().saturating_sub(limits::PATH_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn path_line(view: &PathView) -> String {
    let rate: ByteRate = view.lanes.iter().map(|lane| lane.rate).sum();
    let (up, all) = (
        view.lanes
            .iter()
            .filter(|l| l.state == LaneState::Up)
            .count(),
        view.lanes.len(),
    );
    let (source, destination) = (&view.path.source, &view.path.destination);
    let link = view
        .path
        .rate
        .map_or_else(String::new, |rate| format!(" of {rate}"));
    format!(
        "{} > {}  {} ({}{link}), {up} of {all} lanes",
        source.interface,
        destination.interface,
        rate,
        rate.to_bits(),
    )
}

#[cfg(test)]
mod tests;
