//! What a terminal shows of a run: what has been said, and below it lines that change.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::command::to_stdout;

/// The lines below are on a terminal only; with `--json` nothing is said at all.
pub struct Screen {
    below: ProgressBar,
    silent: bool,
}

impl Screen {
    /// With nothing below yet.
    pub fn new(silent: bool) -> Self {
        let target = if silent || !std::io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let below = ProgressBar::with_draw_target(Some(1), target);
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            below.set_style(style);
        }
        Self { below, silent }
    }

    /// Says a part of the answer, to stdout.
    pub fn answer(&self, text: &str) {
        if !self.silent {
            self.above(|| to_stdout(text));
        }
    }

    /// Says how far it is, to stderr.
    pub fn say(&self, line: &str) {
        if !self.silent {
            self.above(|| eprintln!("{line}"));
        }
    }

    /// Puts these lines below.
    pub fn live(&self, lines: &[String]) {
        self.below.set_message(lines.join("\n"));
    }

    /// Takes them away.
    pub fn end(&self) {
        self.below.finish_and_clear();
    }

    fn above(&self, say: impl FnOnce()) {
        if self.below.is_hidden() {
            say();
        } else {
            self.below.suspend(say);
        }
    }
}
