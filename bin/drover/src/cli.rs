//! The one definition of the command line: help, completions and manual pages come from it.

mod examples;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use drover_api::Limit;
use drover_types::{HostName, OperatorName, ReductionMode, VmName};

use crate::convergence::ConvergenceArgs;
use crate::doctor::{self, DoctorArgs};
use crate::lab::LabCommand;
use crate::nic::{self, NicCommand};
use crate::plan::{self, PlanCommand};
use crate::recent::{self, RecentCommand};
use crate::resolve::{self, ResolveArgs};
use crate::runs::args::{
    self, CancelArgs, DrainArgs, MaintenanceCommand, RebalanceArgs, ResumeArgs, RunArgs,
};
use crate::storage::{self, StorageCommand};
use crate::top;

/// Where the agent listens when nothing else is said.
const DEFAULT_SOCKET: &str = "/run/drover/droverd.sock";

/// Options of every command stand behind those of their own.
const GENERAL: usize = 900;

/// Every help begins with what it is for and examples of its use.
const TEMPLATE: &str = "\
{about-with-newline}
{before-help}{usage-heading} {usage}

{all-args}{after-help}";

/// Moves running guests between hosts, over all their NICs at once.
#[derive(Debug, Parser)]
#[command(name = "drover", version, before_help = examples::TOP, after_help = AFTER)]
pub struct Cli {
    #[command(flatten)]
    pub agent: Agent,

    #[command(subcommand)]
    pub command: Command,
}

/// Which agent is asked.
#[derive(Debug, Clone, Args)]
pub struct Agent {
    /// The socket of the agent on this host
    #[arg(
        long,
        value_name = "PATH",
        env = "DROVER_SOCKET",
        default_value = DEFAULT_SOCKET,
        hide_env_values = true,
        display_order = GENERAL,
        global = true
    )]
    pub socket: PathBuf,

    /// The agent of another host, asked over the network as https://HOST[:PORT]
    #[arg(
        long,
        value_name = "URL",
        env = "DROVER_AGENT",
        hide_env_values = true,
        display_order = GENERAL,
        requires = "identity",
        global = true
    )]
    pub agent: Option<String>,

    /// The file that `drover cluster operator` wrote, to use with --agent
    #[arg(
        long,
        value_name = "FILE",
        env = "DROVER_IDENTITY",
        hide_env_values = true,
        display_order = GENERAL,
        global = true
    )]
    pub identity: Option<PathBuf>,

    /// A cluster that you used before, see `drover recent`
    #[arg(
        long,
        value_name = "NAME",
        env = "DROVER_CLUSTER",
        hide_env_values = true,
        display_order = GENERAL,
        global = true
    )]
    pub cluster: Option<HostName>,

    /// Whether the command line names one: the environment does so for all commands.
    #[arg(skip)]
    pub named: bool,
}

const INVENTORY_AFTER: &str = "\
Every member is asked, and what it told is as old as AGE says. MEMORY is what a host has, ITS OWN what it keeps and
others than guests use, GUESTS' what its guests were given; WRITTEN is what of a guest's memory there is to move,
DIRTY RATE how fast it writes, sampled now and then. Members that do not answer are named below.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Guests of this host: list, show, start, suspend, stop
    #[command(before_help = examples::VM)]
    Vm {
        #[command(subcommand)]
        command: VmCommand,
    },
    /// Move a running guest to another host
    #[command(before_help = examples::MIGRATE, after_help = MIGRATE_EXIT)]
    Migrate(Migrate),
    /// Disks of running guests: move one to another file of its host, look, cancel
    #[command(before_help = storage::EXAMPLES)]
    Storage {
        #[command(subcommand)]
        command: StorageCommand,
    },
    /// Guests, migrations and peers of this host
    #[command(before_help = examples::STATUS)]
    Status,
    /// Every host and guest of the cluster, with what plans are made from
    #[command(before_help = examples::INVENTORY, after_help = INVENTORY_AFTER)]
    Inventory,
    /// What this host keeps of guests that left, for their return
    #[command(before_help = examples::CHECKPOINTS)]
    Checkpoints {
        /// Remove what is kept of this guest
        #[arg(long, value_name = "NAME")]
        remove: Option<VmName>,
    },
    /// Hosts, NICs, guests, migrations and the run as they are, on the whole terminal; only to look
    #[command(before_help = top::EXAMPLES, after_help = top::AFTER)]
    Top,
    /// Migrations that were, and what happened in one
    #[command(before_help = examples::HISTORY)]
    History {
        /// The name of a guest: its migrations, and the events of the last one; or the id of one
        #[arg(value_name = "NAME|ID")]
        what: Option<String>,
    },
    /// Limit what migrations may carry, or show the limits
    #[command(before_help = examples::LIMIT, after_help = LIMIT_AFTER)]
    Limit(LimitArgs),
    /// Cancel a migration, or with --run a drain, resume or rebalance; guests stay where they are
    #[command(before_help = examples::CANCEL)]
    Cancel(CancelArgs),
    /// Decide whose a guest is, in the place of a host that does not answer
    #[command(before_help = resolve::EXAMPLES, after_help = resolve::AFTER)]
    Resolve(ResolveArgs),
    /// This host: versions, memory, interfaces
    #[command(before_help = examples::HOST)]
    Host,
    /// Have this host take no guests, neither arriving ones nor started ones; those that it has stay
    #[command(before_help = examples::CORDON)]
    Cordon {
        /// Why, for those who wonder
        #[arg(long, value_name = "WORDS")]
        reason: Option<String>,
    },
    /// Have this host take guests again
    #[command(before_help = examples::UNCORDON)]
    Uncordon,
    /// Empty hosts: cordon them, and move every guest to where a plan puts it
    #[command(before_help = args::DRAIN_EXAMPLES, after_help = args::DRAIN_AFTER)]
    Drain(DrainArgs),
    /// Have a host take guests again, and bring home those that left it
    #[command(before_help = args::RESUME_EXAMPLES, after_help = args::RESUME_AFTER)]
    Resume(ResumeArgs),
    /// Empty a host that is to be worked on, and fill it again afterwards
    #[command(before_help = args::MAINTENANCE_EXAMPLES, after_help = args::MAINTENANCE_AFTER)]
    Maintenance {
        #[command(subcommand)]
        command: MaintenanceCommand,
    },
    /// Move guests from full hosts to less full ones, where that gains enough
    #[command(before_help = args::REBALANCE_EXAMPLES, after_help = args::REBALANCE_AFTER)]
    Rebalance(RebalanceArgs),
    /// Show what drain, resume and rebalance have done, or are doing
    #[command(before_help = args::RUN_EXAMPLES)]
    Run(RunArgs),
    /// Plan what moves where in the whole cluster, and show it; nothing is changed
    #[command(before_help = plan::EXAMPLES)]
    Plan {
        #[command(subcommand)]
        command: PlanCommand,
    },
    /// The hosts that trust each other: make, join, look, remove
    #[command(before_help = examples::CLUSTER)]
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// The clusters that you used, and whether they are there still; name them, forget them
    #[command(before_help = recent::EXAMPLES, after_help = recent::AFTER)]
    Recent {
        #[command(subcommand)]
        command: Option<RecentCommand>,
    },
    /// What of this host costs its migrations, and what to do about it
    #[command(before_help = doctor::EXAMPLES, after_help = doctor::AFTER)]
    Doctor(DoctorArgs),
    /// Rates, cables and modules of NICs, and what keeps a link below what it could be
    #[command(before_help = nic::EXAMPLES, after_help = nic::AFTER)]
    Nic {
        #[command(subcommand)]
        command: NicCommand,
    },
    /// Hosts, NICs and a guest made on this machine: see Drover work, and compare it
    Lab {
        #[command(subcommand)]
        command: Box<LabCommand>,
    },
    /// Print completions for a shell
    #[command(before_help = examples::COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Man {
        /// The directory to write them to
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

impl Command {
    /// Whether it is about the agent that the options name.
    pub fn asks_an_agent(&self) -> bool {
        match self {
            Self::Doctor(args) => args.asks_an_agent(),
            Self::Nic { command } => command.asks_an_agent(),
            Self::Completions { .. }
            | Self::Man { .. }
            | Self::Recent { .. }
            | Self::Lab { .. } => false,
            _ => true,
        }
    }
}

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// List the guests that are defined or run on this host
    #[command(before_help = examples::VM_LIST)]
    List,
    /// Show everything that is known of a guest
    #[command(before_help = examples::VM_SHOW)]
    Show {
        /// The guest
        name: VmName,
    },
    /// Start a guest from its definition, or have one that is suspended go on
    #[command(before_help = examples::VM_START)]
    Start {
        /// The guest
        name: VmName,
        /// Boot it where it is suspended, and give up what was in its memory
        #[arg(long)]
        discard_saved_state: bool,
    },
    /// Suspend a guest: save its memory on this host's disk, and end its QEMU
    #[command(before_help = examples::VM_SUSPEND)]
    Suspend {
        /// The guest
        name: VmName,
    },
    /// Stop a guest: press its power button and wait until it has shut down
    #[command(before_help = examples::VM_STOP)]
    Stop {
        /// The guest
        name: VmName,
        /// End it at once, as pulling the plug does
        #[arg(long)]
        force: bool,
        /// Seconds to wait for the guest to shut down
        #[arg(long, value_name = "SECONDS", default_value_t = 90,
              value_parser = clap::value_parser!(u32).range(1..=90), conflicts_with = "force")]
        timeout: u32,
    },
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a cluster: this host gets the authority's key and is the first member
    Init,
    /// Make a token with which one host can join, once; on the authority's host
    Token {
        /// How long it can be used, such as 30m, 2h or 1d, at most 7d
        #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
        ttl: Duration,
    },
    /// Have this host join the cluster of a token
    Join {
        /// What `drover cluster token` printed
        token: String,
    },
    /// Have this host, which must be empty, leave its cluster
    Leave,
    /// Show the members, their certificates and the authority's fingerprint
    Status,
    /// Remove a host or an operator: certificates end, connections are closed; on the authority's
    /// host
    Remove {
        /// The host, or with --operator the operator
        name: String,
        /// It is an operator
        #[arg(long)]
        operator: bool,
    },
    /// Let a host coordinate beside the authority's; on the authority's host
    Coordinator {
        /// The host
        host: HostName,
        /// It no longer coordinates, and the others take no orders from it
        #[arg(long)]
        revoke: bool,
    },
    /// Replace this host's key and certificate now; connections that are open stay open
    Rotate,
    /// Write a file with which an operator gives orders from another machine; on the authority's
    /// host
    Operator {
        /// The operator
        name: OperatorName,
        /// Where to write it; a file that is there is not replaced
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// `90s`, `30m`, `2h`, `1d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time: write a number and s, m, h or d, such as 30m");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number = text.strip_suffix(unit).unwrap_or_default();
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let most = drover_trust::limits::TOKEN_TTL_MOST;
    match number.checked_mul(seconds).map(Duration::from_secs) {
        Some(time) if !time.is_zero() && time <= most => Ok(time),
        _ => Err(format!("{text} is not between 1s and 7d")),
    }
}

/// Options of `drover migrate`.
#[derive(Debug, Clone, Args)]
pub struct Migrate {
    /// The guest
    pub name: VmName,
    /// The host of the cluster to move it to
    #[arg(long, value_name = "HOST")]
    pub to: HostName,
    /// How it is brought to its end
    #[command(flatten)]
    pub convergence: ConvergenceArgs,
    /// QEMU's channels [default: chosen from paths and cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub channels: Option<u8>,
    /// Connections on each pair of NICs [default: the agent's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub lanes: Option<u8>,
    /// What is done so that fewer bytes cross: auto, off, pages, lz4, or zstd: with a level from -7 to 6 [default: the agent's]
    #[arg(long, value_name = "HOW")]
    pub reduction: Option<ReductionMode>,
    /// Copy disks in files that are this host's alone, too: anew, or over what it left at HOST
    #[arg(long)]
    pub with_disks: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub detach: bool,
}

/// Options of `drover limit`.
#[derive(Debug, Clone, Args)]
pub struct LimitArgs {
    /// The limit: 5gbit, 200mbit, or 50% of the link
    #[arg(value_name = "RATE")]
    pub rate: Option<Limit>,
    /// Of one interface of this host, rather than of all migrations together
    #[arg(long, value_name = "NAME", conflicts_with = "migration")]
    pub nic: Option<String>,
    /// Of one migration from this host
    #[arg(long, value_name = "ID|NAME")]
    pub migration: Option<String>,
    /// Lift the limit
    #[arg(long, conflicts_with = "rate")]
    pub clear: bool,
}

const LIMIT_AFTER: &str = "\
Limits hold for payload, for each direction by itself, from half a second after they are set. What
arrives is limited at its source. Those of the host and of its NICs outlive the agent; those of a
migration end with it.";

const AFTER: &str = "\
Exit codes:
  0  done                         5  cancelled by the operator
  1  an error                     6  partly done
  2  wrong usage                  7  the agent does not answer
  4  refused, nothing was changed

Environment:
  DROVER_SOCKET    as --socket
  DROVER_AGENT     as --agent
  DROVER_IDENTITY  as --identity
  DROVER_CLUSTER   as --cluster
  NO_COLOR         no colour";

const MIGRATE_EXIT: &str = "\
Ctrl-C cancels the migration; the guest stays where it is, and the exit code is 5. A second Ctrl-C
only ends this command.";

/// The definition, with `--json` on every command and examples in front of every help.
pub fn definition() -> clap::Command {
    complete(Cli::command(), "")
}

/// Adds to a command and those below it what is the same for all. `examples` are its parent's.
fn complete(command: clap::Command, examples: &str) -> clap::Command {
    let mut command = with_json(with_examples(command.help_template(TEMPLATE), examples));
    let examples = command
        .get_before_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let names: Vec<_> = command
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    for name in &names {
        command = command.mut_subcommand(name, |below| complete(below, &examples));
    }
    command
}

/// A command without examples of its own may be in its parent's.
fn with_examples(command: clap::Command, of_parent: &str) -> clap::Command {
    if command.get_before_help().is_some() {
        return command;
    }
    let is_own = |line: &&str| {
        line.split_whitespace()
            .any(|word| word == command.get_name())
    };
    let own: Vec<_> = of_parent.lines().filter(is_own).collect();
    if own.is_empty() {
        return command;
    }
    command.before_help(format!("Examples:\n{}\n\n", own.join("\n")))
}

/// Adds `--json`, unless the command has a `--json` of its own. A global argument would do, but for
/// `lab compare`, whose `--json` takes a file.
fn with_json(command: clap::Command) -> clap::Command {
    let without = ["completions", "man"].contains(&command.get_name());
    if without
        || command
            .get_arguments()
            .any(|arg| arg.get_long() == Some("json"))
    {
        return command;
    }
    // It is understood before the last word of a command as well, but shown only after it.
    let hidden = command.is_subcommand_required_set();
    let json = Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .hide(hidden);
    let json = json
        .display_order(GENERAL)
        .help("Print one JSON document, see docs/CLI.md");
    command.arg(json)
}

/// Reads the arguments of this process, and whether JSON is wanted. Ends it for help, a version
/// or wrong usage.
pub fn parse() -> (Cli, bool) {
    let matches = definition().get_matches();
    let read = Cli::from_arg_matches(&matches).and_then(|cli| one_agent(cli, &matches));
    match read {
        Ok(cli) => (cli, wants_json(&matches)),
        Err(error) => error.exit(),
    }
}

/// Which agent is meant where several are: what stands in the command goes before the environment.
fn one_agent(mut cli: Cli, matches: &ArgMatches) -> Result<Cli, clap::Error> {
    let is_given = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
    cli.agent.named = is_given("agent") || is_given("socket");
    if cli.agent.cluster.is_none() || !cli.agent.named {
        return Ok(cli);
    }
    if is_given("cluster") {
        let words = "--cluster names an agent, and so does --socket or --agent: give one of them\n";
        return Err(definition().error(ErrorKind::ArgumentConflict, words));
    }
    cli.agent.cluster = None;
    Ok(cli)
}

fn wants_json(matches: &ArgMatches) -> bool {
    let here = matches
        .try_get_one::<bool>("json")
        .ok()
        .flatten()
        .copied()
        .unwrap_or(false);
    here || matches
        .subcommand()
        .is_some_and(|(_, below)| wants_json(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_holds_together() {
        definition().debug_assert();
    }

    #[test]
    fn json_is_understood_before_and_after_the_command() {
        let wants = |line: &str| {
            let matches = definition().get_matches_from(line.split(' '));
            assert!(Cli::from_arg_matches(&matches).is_ok(), "{line}");
            wants_json(&matches)
        };
        assert!(wants("drover vm list --json"));
        assert!(wants("drover --json vm list"));
        assert!(wants("drover lab status --json"));
        assert!(!wants("drover vm list"));
        assert!(!wants("drover lab compare --json out.json"));
    }

    #[test]
    fn a_cluster_is_named_instead_of_an_agent_and_not_beside_it() {
        let read = |line: &str| {
            let matches = definition().get_matches_from(line.split(' '));
            let cli = Cli::from_arg_matches(&matches).unwrap();
            one_agent(cli, &matches).map(|cli| cli.agent.cluster.map(String::from))
        };
        assert_eq!(
            read("drover --cluster a status").unwrap().as_deref(),
            Some("a")
        );
        assert_eq!(
            read("drover status --cluster a").unwrap().as_deref(),
            Some("a")
        );
        assert_eq!(read("drover --socket /s status").unwrap(), None);
        let named = |line: &str| {
            let matches = definition().get_matches_from(line.split(' '));
            let cli = Cli::from_arg_matches(&matches).unwrap();
            one_agent(cli, &matches).unwrap().agent.named
        };
        assert!(named("drover --socket /s doctor") && named("drover doctor --socket /s"));
        assert!(!named("drover doctor"));
        for both in [
            "drover --cluster a --socket /s status",
            "drover --socket /s status --cluster a",
            "drover status --cluster a --agent https://a --identity f",
        ] {
            let error = read(both).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{both}");
        }
    }

    #[test]
    fn the_life_of_a_token_is_a_number_and_a_unit() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in [
            "",
            "h",
            "5",
            "1w",
            "-1h",
            "0s",
            "8d",
            "99999999999999999999d",
            "1é",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
