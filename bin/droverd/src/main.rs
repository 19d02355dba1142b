//! The host agent: starts guests, watches them, and moves them together with its peers.
//!
//! ```text
//!   drover ── UNIX socket ─▶ api ─▶ registry ─▶ hypervisor ─▶ QEMU
//!   peers  ── TLS ─────────▶  │                     ▲
//!             ▲               ├──▶ migration ───────┴─ relay ── lanes ─▶ peers
//!             │               └──▶ libvirt ─▶ libvirtd: its domains are listed, and left alone
//!             └ cluster: who is believed
//!   coordinator (of a host that may coordinate): runs ─▶ orders to the agents of all hosts
//! ```

mod agent;
mod api;
mod changes;
mod checkpoints;
mod clock;
mod cluster;
mod config;

mod coordinator;
mod cordon;
#[cfg(test)]
mod corpus;
mod disks;
mod doctor;
mod elsewhere;
mod end_with;
mod facts;
mod fence;
mod interrupts;
mod inventory;
mod libvirt;
mod limits;
mod links;
mod lldp;
mod logging;
mod metrics;
mod migration;
mod pages;
mod parking;
mod paths;
mod peers;
mod places;
mod planning;
mod present;
mod registry;
mod relay;
mod saved;
mod shared_pages;
mod sharing;
mod storage;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use drover_types::HostName;

use crate::config::Config;

/// The host agent of Drover: starts guests, watches them, and moves them together with its peers.
#[derive(Debug, Parser)]
#[command(name = "droverd", version, before_help = EXAMPLES, after_help = AFTER_HELP)]
#[command(
    help_template = "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}"
)]
struct Arguments {
    /// The configuration; every key is explained in the example that comes with droverd.
    #[arg(long, value_name = "FILE", default_value = config::DEFAULT_FILE)]
    config: PathBuf,

    /// Check the configuration and end: 0 when it can be used.
    #[arg(long)]
    check_config: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the OpenAPI document of the API.
    #[command(hide = true)]
    Openapi,

    /// Write the manual pages.
    #[command(hide = true)]
    Man {
        /// The directory with sections, such as /usr/share/man.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },

    /// Carry one migration's channels, for an agent: its stdin is the socket that the agent made in
    /// the directory.
    #[command(hide = true)]
    Relay {
        /// The process' own directory.
        directory: PathBuf,
    },

    /// Carry a change to this host out, or take it back, for an agent: its stdin is the lock that the agent has taken.
    #[command(hide = true)]
    Change {
        /// The host's name.
        #[arg(long)]
        host: HostName,
        /// The change's folder.
        folder: PathBuf,
        /// What is to be done.
        what: changes::What,
    },

    /// Become a command that ends with the agent that started it.
    #[command(hide = true)]
    EndWith {
        /// The agent's process.
        agent: u32,
        /// The command.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

const EXAMPLES: &str = "\
Examples:
  droverd                                       with /etc/drover/droverd.toml
  droverd --config ./droverd.toml
  droverd --config ./droverd.toml --check-config

";

const AFTER_HELP: &str = "\
Environment:
  DROVER_LOG      what is logged: error, warn, info (default), debug, trace
  JOURNAL_STREAM  set by systemd: no time and no colour in logs
  NO_COLOR        no colour in logs

Signals:
  SIGTERM, SIGINT  end: guests run on, and migrations without an agent for as long as the outage
                   limit; those that are in hand-off are finished first";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("droverd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Some(Command::Openapi) => {
            println!("{}", api::document()?);
            return Ok(());
        }
        Some(Command::Man { directory }) => return pages::write(directory),
        Some(Command::Relay { directory }) => return relay::run(directory.clone()),
        Some(Command::Change { host, folder, what }) => {
            return changes::run_process(&arguments.config, host, folder, *what);
        }
        Some(Command::EndWith { agent, command }) => return end_with::run(*agent, command),
        None => {}
    }
    let config = Config::load(&arguments.config)?;
    if arguments.check_config {
        if let Some(warning) = places::check(&config)? {
            eprintln!("droverd: warning: {warning}");
        }
        println!("{}: usable", arguments.config.display());
        return Ok(());
    }
    logging::init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let file = arguments.config.display().to_string();
    let ended = runtime.block_on(agent::run(config)).context(file);
    // Migrations are left to their relays, which would be ended with the tasks that look after them.
    std::mem::forget(runtime);
    ended
}
