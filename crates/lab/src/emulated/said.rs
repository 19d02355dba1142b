//! What the program of a machine says, as much as is kept of it: the end, where tests tell what failed.

use std::collections::VecDeque;
use std::fmt;

use crate::limits::EMULATED_OUTPUT;

/// Lines, and how much was said before them.
#[derive(Debug, Default)]
pub(super) struct Said {
    lines: VecDeque<String>,
    bytes: usize,
    left_out: usize,
}

impl Said {
    pub(super) fn push(&mut self, line: String) {
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > EMULATED_OUTPUT
            && let Some(first) = self.lines.pop_front()
        {
            self.bytes -= first.len() + 1;
            self.left_out += first.len() + 1;
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.left_out > 0 {
            writeln!(to, "({} bytes before this are left out)", self.left_out)?;
        }
        self.lines
            .iter()
            .try_for_each(|line| writeln!(to, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_it_is_said_how_much_there_was_before() {
        let mut said = Said::default();
        said.push("first".into());
        said.push("second".into());
        assert_eq!(said.to_string(), "first\nsecond\n");
        said.push("x".repeat(EMULATED_OUTPUT - 10));
        said.push("last".into());
        let text = said.to_string();
        assert!(text.starts_with("(13 bytes before this are left out)\nxxx"));
        assert!(text.ends_with("\nlast\n"));
    }
}
