//! How busy this machine's CPUs are.

use anyhow::{Context, Result};

/// CPU time of the whole machine since it was started, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
}

/// A look at the CPUs, to be compared with a later one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Busy(Ticks);

impl Busy {
    /// Begins.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub(crate) fn begin() -> Result<Self> {
        Ok(Self(look()?))
    }

    /// The part of all CPUs' time since then that they were busy, from 0 to 1.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn end(self) -> Result<f64> {
        let now = look()?;
        let all = now.all.saturating_sub(self.0.all).max(1) as f64;
        Ok(1.0 - now.idle.saturating_sub(self.0.idle) as f64 / all)
    }
}

fn look() -> Result<Ticks> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    parse(&text).context("/proc/stat is unreadable")
}

/// The first line of proc_stat(5): user, nice, system, idle, iowait and others; guests' time is in user's.
fn parse(text: &str) -> Option<Ticks> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Option<Vec<u64>> = line
        .split_whitespace()
        .take(8)
        .map(|f| f.parse().ok())
        .collect();
    let fields = fields?;
    Some(Ticks {
        all: fields.iter().sum(),
        idle: fields.get(3)? + fields.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_all_cpus_is_read() {
        let text = "cpu  10 1 20 60 5 2 1 1 7 0\ncpu0 1 1 1 1\n";
        assert_eq!(parse(text), Some(Ticks { all: 100, idle: 65 }));
        assert_eq!(parse("cpu0 1 2 3 4"), None);
        let busy = Busy::begin().unwrap().end().unwrap();
        assert!((0.0..=1.0).contains(&busy), "{busy}");
    }
}
