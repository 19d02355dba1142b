//! `drover doctor`: what of a host costs its migrations, and what is done about it.

mod agents_word;
mod anonymous;
mod capture;
mod changes;
mod junit;
mod missing;
mod paths;
mod report;
mod show;
mod since;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use drover_api::{Client, ClientError, ClusterPathsRequest};
use drover_host::{Told, Tree, facts};
use drover_tune::facts::{Host, Interrupt};
use drover_tune::{Document, Finding, RULES, Rule, Severity, examine};
use drover_types::{HostName, with_sources};
use jiff::Timestamp;
use serde_json::json;

use self::agents_word::AgentsWord;
use self::anonymous::Key;
pub use self::capture::read as captured_host;
use self::changes::ChangeCommand;
pub use self::changes::{Ordered, applied, not_begun, to_its_end};
use self::missing::Missing;
use self::paths::Asked;
use self::report::Target;
pub use self::show::{clean, in_full};
use self::since::Since;
use crate::cli::Agent;
use crate::command::{Outcome, client, encoded};
use crate::failure::{Failure, exit};

pub const EXAMPLES: &str = "\
Examples:
  drover doctor                               this host
  drover doctor --all                         all hosts of the cluster, and what differs between them
  drover doctor --all --paths                 and the paths between them, asked by packets on the real ways
  drover doctor --all --paths=a,b             the paths between these; of one host those to and from all others
  drover doctor --all --paths=a,b --load      and what they carry, by loading them for a second each
  drover doctor --all --paths --load --load-together   and whether several hosts at once share a line that carries less
  drover doctor --all --paths --since 7d      and what has changed in a week, as far as the agent was asked by then
  drover doctor --explain nic-queues          what a rule wants, and all that it found
  drover doctor capture /tmp/a --anonymous    what was read here, to be looked at elsewhere
  drover doctor --captured a --captured b     two captured hosts, and what differs between them
  drover doctor --all --report doctor.html    all of it as one document, to be handed to others; .md for Markdown
  drover doctor --junit doctor.xml            for a pipeline
  drover doctor plan -o tune.plan             what would be changed on this host, as a diff
  drover doctor apply tune.plan               do that, or take it back if other hosts are cut off
  drover doctor undo                          take it back
  drover doctor forget ID                     or leave it as it is, and have it remembered no longer

";

const RULES_EXAMPLES: &str = "\
Examples:
  drover doctor rules                         each rule, and what it wants
  drover doctor rules --json                  the same with where that is said
  drover doctor --explain nic-queues          all of one of them, and what it found here

";

const CAPTURE_EXAMPLES: &str = "\
Examples:
  drover doctor capture /tmp/a                            what was read here
  drover doctor capture /tmp/a --anonymous --key /tmp/k   to be compared with others of the same key
  drover doctor --captured /tmp/a                         looks at it, here or elsewhere

";

pub const AFTER: &str = "\
Only apply and undo change anything; with --paths the agents send each other a tenth of a link's
rate and 4 MiB a path at most, unless --load is given. What could not be looked at is skipped, and --skipped says why.
Without --all it is this machine that is looked at, whichever agent --socket or --agent names.

Exit code: 0 nothing was found, or notices alone, 2 something worse was, 1 an error, or a member
that did not answer or could not ask another, 7 with --all: the agent does not answer.";

/// Something was found that costs migrations.
const FOUND: u8 = 2;

/// Nothing was found, and not every member answered.
const NOT_ALL: u8 = 1;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DoctorArgs {
    #[command(subcommand)]
    command: Option<DoctorCommand>,
    /// Look at all hosts of the cluster, and at what differs between them; asks the agent
    #[arg(long, conflicts_with = "captured")]
    all: bool,
    /// Have the agents ask the paths between all hosts, or these: reachability, the largest packet, loss, round trips
    #[arg(long, value_name = "HOST", requires = "all", num_args = 0.., value_delimiter = ',', require_equals = true)]
    paths: Option<Vec<HostName>>,
    /// Measure what each path carries, by connections that are full for so long [default: 1s], two hosts at a time. Not while
    /// guests move; where guests run at either end, by half of the link's rate
    #[arg(long, value_name = "TIME", requires = "paths", num_args = 0..=1, default_missing_value = "1s", require_equals = true,
          value_parser = paths::load_time)]
    load: Option<Duration>,
    /// Of a link's rate what --load may take, in percent, whether or not guests run there
    #[arg(long, value_name = "PERCENT", requires = "load", value_parser = clap::value_parser!(u8).range(1..=100))]
    load_share: Option<u8>,
    /// Measure after that what paths carry while all hosts load one, each in turn, and while every host loads another: 2 minutes at most, and
    /// of a link no more than --load may take, by all who load it together
    #[arg(long, requires = "load")]
    load_together: bool,
    /// Say what has changed since the agent was asked for all paths: so long ago (12h, 7d, 1w), or at a date or time
    #[arg(long, value_name = "WHEN", requires = "all", conflicts_with = "explain", value_parser = since::when)]
    since: Option<Timestamp>,
    /// Look at a captured host instead of this one; several are compared with each other
    #[arg(long, value_name = "DIR")]
    captured: Vec<PathBuf>,
    /// Say everything of one rule: what it wants, where that is said, and what it found
    #[arg(long, value_name = "RULE", value_parser = known_rule)]
    explain: Option<&'static Rule>,
    /// Say what could not be looked at, and why
    #[arg(long)]
    skipped: bool,
    /// Write all of it to this file, to be handed to others: Markdown or HTML by its name (.md, .html)
    #[arg(long, value_name = "FILE", value_parser = report::target)]
    report: Option<Target>,
    /// Write the findings to this file as JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

impl DoctorArgs {
    /// Whether it asks an agent.
    pub fn asks_an_agent(&self) -> bool {
        self.all || matches!(self.command, Some(DoctorCommand::Change(_)))
    }
}

#[derive(Debug, Subcommand)]
enum DoctorCommand {
    /// Write what was read of this host to a directory, which must not be there
    #[command(before_help = CAPTURE_EXAMPLES)]
    Capture {
        /// The directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Without names and addresses of the host
        #[arg(long)]
        anonymous: bool,
        /// Take names and addresses away by the key in this file, made if it is not there: hosts captured with one key can be compared
        #[arg(long, value_name = "FILE", requires = "anonymous")]
        key: Option<PathBuf>,
    },
    /// List the rules, and what each wants
    #[command(before_help = RULES_EXAMPLES)]
    Rules,
    #[command(flatten)]
    Change(ChangeCommand),
}

fn known_rule(name: &str) -> Result<&'static Rule, String> {
    let rule = RULES.iter().find(|rule| rule.name == name);
    rule.ok_or_else(|| format!("there is no rule {name:?}: `drover doctor rules` lists them"))
}

/// `drover doctor`
pub async fn doctor(agent: &Agent, args: DoctorArgs) -> Result<Outcome, Failure> {
    match args.command {
        Some(DoctorCommand::Rules) => {
            let told = |rule: &Rule| {
                json!({
                    "name": rule.name, "wants": rule.wants, "source": rule.source,
                    "documentation": rule.documentation(),
                })
            };
            let rules: Vec<_> = RULES.iter().map(told).collect();
            Outcome::new(show::rules(), "rules", &rules)
        }
        Some(DoctorCommand::Change(command)) => changes::run(agent, command).await,
        Some(DoctorCommand::Capture {
            directory,
            anonymous,
            key,
        }) => {
            let key = anonymous.then(|| Key::of(key.as_deref())).transpose()?;
            capture_this(agent, &directory, key).await
        }
        None => check(agent, args).await,
    }
}

/// Said where an agent was named and this machine is looked at.
const NOT_ASKED: &str = "note: without --all it is this machine that is looked at, whichever agent is named; with --all that agent tells of its \
                         host and of all others";

async fn check(agent: &Agent, args: DoctorArgs) -> Result<Outcome, Failure> {
    if agent.named && !args.all && args.captured.is_empty() {
        eprintln!("{NOT_ASKED}");
    }
    // Before anything is asked, as that will be kept, too.
    let before = match args.since {
        Some(at) => Some(since::before(agent, at).await?),
        None => None,
    };
    let (hosts, mut left_out) = if args.all {
        let asked = client(agent)?.cluster_facts().await;
        let view = asked.map_err(Failure::of_reading)?;
        (view.facts, view.left_out)
    } else {
        (hosts(agent, &args.captured).await?, Vec::new())
    };
    let asked = match args.paths {
        Some(hosts) => {
            let request = ClusterPathsRequest {
                hosts,
                load: paths::load(args.load, args.load_share),
                load_together: args.load_together,
            };
            Some(paths::ask(agent, &request, &mut left_out).await?)
        }
        None => None,
    };
    let paths = asked.as_ref().map(|asked| asked.paths.as_slice());
    let mut report = examine(&hosts, paths.unwrap_or_default());
    let mut missing: Vec<Missing> = left_out.iter().map(Missing::from).collect();
    match &asked {
        Some(asked) => {
            asked.skip(&mut report);
            missing.extend(asked.missing());
        }
        None => {
            let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
            report.skip_paths(&names);
        }
    }
    let since = before.map(|before| Since::new(before, &hosts, asked.as_ref()));
    if let Some(file) = &args.junit {
        let written = std::fs::write(file, junit::xml(&report, &missing));
        written
            .map_err(|error| Failure::error(format!("cannot write {}: {error}", file.display())))?;
        eprintln!("{}: the findings, as JUnit's XML", file.display());
    }
    if let Some(target) = &args.report {
        let missing: Vec<_> = missing
            .iter()
            .map(|one| (one.whom.clone(), one.why.clone()))
            .collect();
        target.write(&Document {
            hosts: &hosts,
            report: &report,
            paths,
            missing: &missing,
            at: &format!("{:.0}", Timestamp::now()),
            version: env!("CARGO_PKG_VERSION"),
        })?;
    }
    let (text, found) = match args.explain {
        Some(rule) => {
            let of_rule = |finding: &&Finding| finding.rule == rule.name;
            let found = costs(report.findings.iter().filter(of_rule));
            (show::explained(rule, &report, &missing), found)
        }
        None => {
            let about_paths = asked.as_ref().map(Asked::summary).unwrap_or_default();
            let changed = since.as_ref().map(Since::told).unwrap_or_default();
            let text = show::report(&report, args.skipped, &missing);
            (
                about_paths + &changed + &text,
                costs(report.findings.iter()),
            )
        }
    };
    let mut parts = vec![
        ("findings", encoded(&report.findings)?),
        ("skipped", encoded(&report.skipped)?),
        ("right", encoded(&report.right.len())?),
        ("left_out", encoded(&left_out)?),
    ];
    if let Some(asked) = &asked {
        parts.push(("paths", encoded(&asked.paths)?));
        parts.push(("paths_left_out", encoded(&asked.left_out)?));
        parts.push(("paths_not_kept", encoded(&asked.not_kept)?));
        parts.push(("loaded_together", encoded(&asked.loaded_together)?));
    }
    if let Some(since) = &since {
        parts.push(("since", encoded(since)?));
    }
    let exit = exit_of(found, missing.is_empty());
    Ok(Outcome::of_parts(text, &parts)?.with_exit(exit))
}

/// What was found counts before what could not be looked at.
fn exit_of(costs: bool, is_all: bool) -> u8 {
    match (costs, is_all) {
        (true, _) => FOUND,
        (false, false) => NOT_ALL,
        (false, true) => exit::DONE,
    }
}

/// Whether one of them costs migrations. A notice only may.
fn costs<'a>(mut findings: impl Iterator<Item = &'a Finding>) -> bool {
    findings.any(|finding| finding.found.severity < Severity::Notice)
}

async fn hosts(agent: &Agent, captured: &[PathBuf]) -> Result<Vec<Host>, Failure> {
    if captured.is_empty() {
        let (tree, told) = this().await?;
        return Ok(vec![with_agents(agent, facts(&tree, &told)).await]);
    }
    captured
        .iter()
        .map(|directory| capture::read(directory))
        .collect()
}

/// This host with what its agent knows of its guests, and of what changes could not change, where there is one. All else is read here: it
/// does not take an agent.
async fn with_agents(agent: &Agent, mut host: Host) -> Host {
    match Client::unix(&agent.socket).facts().await {
        Ok(told) => {
            host.mark_fixed(|own| is_fixed(&told.facts, own));
            AgentsWord::of(told.facts).given_to(host)
        }
        Err(error) => AgentsWord::unknown(&not_asked(&error)).given_to(host),
    }
}

fn not_asked(error: &ClientError) -> String {
    format!("no agent was asked: {}", with_sources(error))
}

/// Whether nobody may move an interrupt, by what the agent knows of it.
fn is_fixed(told: &Host, own: &Interrupt) -> bool {
    let known = told.nics.iter().filter_map(|nic| nic.interrupts.known());
    let mut known = known.flatten();
    known.any(|other| other.fixed && (other.number, &other.cpus) == (own.number, &own.cpus))
}

/// The files of this host, and what its kernel tells.
async fn this() -> Result<(Tree, Told), Failure> {
    let root = Path::new("/");
    let tree = Tree::at(root);
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.map_or_else(|_| "this host".to_owned(), |name| name.trim().to_owned());
    let told = Told::ask(root, &name).await;
    let told = told.map_err(|error| Failure::error(with_sources(&error)))?;
    Ok((tree, told))
}

async fn capture_this(
    agent: &Agent,
    directory: &Path,
    key: Option<Key>,
) -> Result<Outcome, Failure> {
    let (tree, mut told) = this().await?;
    // What the rules ask for is what is looked at.
    let _ = facts(&tree, &told);
    let mut seen = tree.seen();
    // Without an agent all else is captured.
    let (mut word, why) = match Client::unix(&agent.socket).facts().await {
        Ok(told) => (Some(AgentsWord::of(told.facts)), None),
        Err(error) => (None, Some(not_asked(&error))),
    };
    if let Some(key) = key {
        anonymous::make(&key, &mut seen, &mut told);
        word = word.as_ref().map(AgentsWord::nameless);
    }
    let files = capture::write(directory, &seen, &told, word.as_ref())?;
    let shown = directory.display().to_string();
    let without = why.as_ref().map_or_else(String::new, |why| {
        format!("; nothing of its guests, as {why}")
    });
    let text = format!(
        "{shown}: {files} files{without}; look at it with `drover doctor --captured {shown}`\n"
    );
    let parts = [
        ("directory", json!(shown)),
        ("files", json!(files)),
        ("guests", json!(word.is_some())),
        ("because", json!(why)),
    ];
    Outcome::of_parts(text, &parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_alone_are_no_failure_and_what_was_found_counts_before_who_did_not_answer() {
        let of = |severity: &str| -> Finding {
            let finding = json!({
                "rule": "guest-huge-pages", "subject": { "host": "a", "other": null, "nic": null }, "severity": severity,
                "read": "", "expected": "", "why": "", "cost": null, "change": null, "by_hand": null,
            });
            serde_json::from_value(finding).unwrap()
        };
        let [notice, warning, critical] = ["notice", "warning", "critical"].map(of);
        let exit = |findings: &[&Finding], is_all| exit_of(costs(findings.iter().copied()), is_all);
        assert_eq!(exit(&[], true), 0);
        assert_eq!(exit(&[&notice, &notice], true), 0);
        assert_eq!(exit(&[&notice], false), NOT_ALL);
        assert_eq!(exit(&[&notice, &warning], true), FOUND);
        assert_eq!(exit(&[&critical], false), FOUND);
    }
}
