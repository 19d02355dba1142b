//! How a migration proceeds, for a person at a terminal.

use drover_api::{LaneState, MigrationPhase, MigrationView, PathView, StorageMoveView};
use drover_types::ByteRate;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::limits;
use crate::show::{time_left, word};

/// A progress bar with lines below it. Silent when stderr is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar that shows nothing yet; `quiet` never does.
    pub fn new(quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:24}] {percent:>3}% {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Shows how far a migration is.
    pub fn show(&self, view: &MigrationView) {
        let (done, total) = position(view);
        let prefix = format!("{} {} > {}", view.vm, view.source, view.destination);
        self.0.set_prefix(prefix);
        self.0.update(|state| {
            state.set_len(total);
            state.set_pos(done);
        });
        self.0.set_message(lines(view).join("\n  "));
    }

    /// Shows how far the move of a disk is.
    pub fn show_disk(&self, view: &StorageMoveView) {
        self.0.set_prefix(format!("{} {}", view.vm, view.disk));
        self.0.update(|state| {
            state.set_len(view.total.0.max(1));
            state.set_pos(view.copied.0);
        });
        let (phase, copied, total) = (view.phase, view.copied, view.total);
        self.0
            .set_message(format!("{phase}\n  {copied} of {total}"));
    }

    /// Says something above the bar.
    pub fn say(&self, text: &str) {
        if self.0.is_hidden() {
            eprintln!("{text}");
        } else {
            self.0.suspend(|| eprintln!("{text}"));
        }
    }

    /// Takes it all away.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}

/// How much of the memory is there, and all of it; at least 1, as a bar of 0 shows nothing. Before memory it is of disks.
fn position(view: &MigrationView) -> (u64, u64) {
    if let Some(disks) = view.disks.filter(|_| view.bytes.total.0 == 0) {
        return (disks.copied.0, disks.total.0.max(1));
    }
    let total = view.bytes.total.0.max(1);
    let done = match view.phase {
        MigrationPhase::HandingOff | MigrationPhase::Completed => total,
        _ if view.bytes.transferred.0 == 0 => 0,
        _ => total.saturating_sub(view.bytes.remaining.0),
    };
    (done, total)
}

/// The phase, what was sent and how fast, and each path; all of it fits in 80 columns.
fn lines(view: &MigrationView) -> Vec<String> {
    let mut lines = vec![word(&view.phase)];
    let sent = sent(view);
    if !sent.is_empty() {
        lines.push(sent);
    }
    lines.extend(view.paths.iter().take(limits::PATH_LINES).map(path_line));
    let more = view.paths.len().saturating_sub(limits::PATH_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn sent(view: &MigrationView) -> String {
    let mut parts = Vec::new();
    if let Some(disks) = &view.disks {
        parts.push(crate::show::copied(disks));
    }
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
    if let Some(percent) = view.throttle_percent {
        parts.push(format!("guest slowed by {percent} %"));
    }
    parts.extend(time_left(view));
    parts.join(", ")
}

fn path_line(view: &PathView) -> String {
    let rate: ByteRate = view.lanes.iter().map(|lane| lane.traffic.rate).sum();
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
