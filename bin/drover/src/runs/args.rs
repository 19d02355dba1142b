//! The options of the commands about runs.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use drover_plan::limits::REBALANCE_MOVES;
use drover_types::{HostName, RunId};

/// Of `drover drain`.
pub const DRAIN_EXAMPLES: &str = "\
Examples:
  drover drain a                          empty host a, and follow it to the end
  drover drain a b                        two hosts at once
  drover drain a --dry-run                show the plan, change nothing
  drover drain a --dry-run -o plan.json   keep the plan, look at it, and then
  drover drain --plan plan.json           carry out exactly that one
  drover drain a --detach                 begin, and look later with drover run
  drover drain a --with-disks --dry-run   with what disks that only a has would take

";

/// Below the help of `drover drain`.
pub const DRAIN_AFTER: &str = "\
The hosts are cordoned, all members are asked for what they have, and every guest moves to where the
plan puts it. A coordinator's agent carries it out, and goes on if this command ends:
Ctrl-C stops following and leaves the drain under way (exit code 6), `drover cancel --run` ends it.

Disks that only their own host has are copied with --with-disks alone: that takes time, and room
elsewhere, and leaves stale files behind. The way home takes the same word.

Exit codes: 0 all guests have left, 4 there is no plan, 5 cancelled, 6 some guests have not left or
it is no longer followed.";

/// Of `drover resume`.
pub const RESUME_EXAMPLES: &str = "\
Examples:
  drover resume a                            host a takes guests again
  drover resume a --fail-back                and those that left it in its last drain come home
  drover resume a --fail-back --with-disks   also those that left with their disks

";

/// Below the help of `drover resume`.
pub const RESUME_AFTER: &str = "\
A guest that cannot come home stays where it is and is a warning, no failure: the exit code is 0.
Ctrl-C stops following and leaves it under way (exit code 6).";

/// Of `drover maintenance`.
pub const MAINTENANCE_EXAMPLES: &str = "\
Examples:
  drover maintenance on a --dry-run   where its guests would go
  drover maintenance on a             empty host a; it takes no guests until maintenance is off
  drover maintenance off a            it takes guests again, and those that left it come home

";

/// Below the help of `drover maintenance`.
pub const MAINTENANCE_AFTER: &str = "\
`on` is `drover drain HOST`, and `off` is `drover resume HOST --fail-back`, with their exit codes
and their --with-disks.";

/// Of `drover rebalance`.
pub const REBALANCE_EXAMPLES: &str = "\
Examples:
  drover rebalance --dry-run           what would move, and what for
  drover rebalance                     move guests from full hosts to less full ones
  drover rebalance --min-gain 10 --most 3

";

/// Below the help of `drover rebalance`.
pub const REBALANCE_AFTER: &str = "\
Nothing moves where the loads are even enough already. Ctrl-C stops following and leaves it under
way (exit code 6).";

/// Of `drover run`.
pub const RUN_EXAMPLES: &str = "\
Examples:
  drover run                                         what is under way, and what was
  drover run 01938f2e-7b1c-7000-8000-2f8e9d3c4b5a    the plan and every move of one
  drover run --follow                                follow the one under way to its end
  drover run --json | jq -r '.runs[0].phase'

";

/// Options of `drover drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    /// The hosts to empty
    #[arg(
        value_name = "HOST",
        required_unless_present = "plan",
        conflicts_with = "plan"
    )]
    pub hosts: Vec<HostName>,
    /// Show the plan and change nothing, as `drover plan drain` does
    #[arg(long, conflicts_with = "plan")]
    pub dry_run: bool,
    /// With --dry-run: write the plan to a file, as JSON; a file that is there is not replaced
    #[arg(
        short,
        long,
        value_name = "FILE",
        requires = "dry_run",
        conflicts_with = "plan"
    )]
    pub output: Option<PathBuf>,
    /// Replace that file
    #[arg(long, requires = "output")]
    pub force: bool,
    /// Carry out exactly the plan in this file, or nothing if the cluster is no longer as it was
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Copy disks that only their own host has along with libvirt's domains, which stay otherwise
    #[arg(long, conflicts_with = "plan")]
    pub with_disks: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with = "dry_run")]
    pub detach: bool,
}

/// Options of `drover resume`.
#[derive(Debug, Clone, Args)]
pub struct ResumeArgs {
    /// The host
    pub host: HostName,
    /// Bring home the guests that left it when it was drained last
    #[arg(long)]
    pub fail_back: bool,
    /// Copy disks that only their own host has along with libvirt's domains, which stay otherwise
    #[arg(long, requires = "fail_back")]
    pub with_disks: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub detach: bool,
}

/// What becomes of a host that is worked on.
#[derive(Debug, Clone, Subcommand)]
pub enum MaintenanceCommand {
    /// Empty the host; it takes no guests from now on
    On {
        /// The host
        host: HostName,
        /// Show the plan and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Copy disks that only the host has along with libvirt's domains, which stay otherwise
        #[arg(long)]
        with_disks: bool,
        /// Do not wait for the end
        #[arg(long, conflicts_with = "dry_run")]
        detach: bool,
    },
    /// Have the host take guests again, and bring home those that left it
    Off {
        /// The host
        host: HostName,
        /// Copy disks back with libvirt's domains that left with theirs, which stay away otherwise
        #[arg(long)]
        with_disks: bool,
        /// Do not wait for the end
        #[arg(long)]
        detach: bool,
    },
}

/// Options of `drover rebalance`.
#[derive(Debug, Clone, Args)]
pub struct RebalanceArgs {
    /// Nothing moves for less: by how many percentage points the standard deviation of the hosts'
    /// loads has to shrink
    #[arg(long, value_name = "PERCENT", default_value = "5.00", value_parser = hundredths)]
    pub min_gain: u32,
    /// At most so many guests move
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(REBALANCE_MOVES)))]
    pub most: u32,
    /// Copy disks that only their own host has along with libvirt's domains, which stay otherwise
    #[arg(long)]
    pub with_disks: bool,
    /// Show the plan and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not wait for the end
    #[arg(long, conflicts_with = "dry_run")]
    pub detach: bool,
}

/// Options of `drover run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// One of them: its plan and every move; with --follow the one under way if none is named
    #[arg(value_name = "ID")]
    pub id: Option<RunId>,
    /// Follow it to its end, with that command's exit code
    #[arg(long)]
    pub follow: bool,
}

/// Options of `drover cancel`.
#[derive(Debug, Clone, Args)]
pub struct CancelArgs {
    /// The migration's id, or the name of its guest
    #[arg(
        value_name = "ID|NAME",
        required_unless_present = "run",
        conflicts_with = "run"
    )]
    pub what: Option<String>,
    /// A run instead, the one under way if no id is given: no further move begins
    #[arg(long, value_name = "ID")]
    pub run: Option<Option<RunId>>,
    /// Of a run: let moves that are under way come to their end, rather than cancelling them
    #[arg(long, requires = "run", conflicts_with = "what")]
    pub let_finish: bool,
    /// Of a run: have hosts that were cordoned for it take guests again
    #[arg(long, requires = "run", conflicts_with = "what")]
    pub uncordon: bool,
}

/// `5`, `2.5`, `0.25`: percentage points, as hundredths of one.
fn hundredths(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is no percentage: write 5 or 2.50, at most 100");
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 2 {
        return Err(wrong());
    }
    let whole: u32 = whole.parse().map_err(|_| wrong())?;
    let decimals: u32 = format!("{decimals:0<2}").parse().map_err(|_| wrong())?;
    match whole.checked_mul(100).map(|whole| whole + decimals) {
        Some(all @ 0..=10_000) => Ok(all),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_percentage_points_with_two_decimals_at_most() {
        assert_eq!(hundredths("5"), Ok(500));
        assert_eq!(hundredths("2.5"), Ok(250));
        assert_eq!(hundredths("0.25"), Ok(25));
        assert_eq!(hundredths("100.00"), Ok(10_000));
        for bad in [
            "",
            ".",
            "5.",
            ".5",
            "-1",
            "+1",
            "5 %",
            "1.234",
            "100.01",
            "43000000",
            "99999999999",
            "é",
        ] {
            assert!(hundredths(bad).is_err(), "{bad}");
        }
    }
}
