//! `drover nic`: what links of hosts are, what they could be, and what is in between.

mod set;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use drover_api::MemberLeftOut;
use drover_tune::facts::{Host, Kind, Nic};
use drover_tune::{Finding, examine, most};
use serde_json::{Value, json};

use self::set::SetArgs;
use crate::cli::Agent;
use crate::command::{Outcome, client, encoded};
use crate::doctor::captured_host;
use crate::failure::{Failure, exit};

pub const EXAMPLES: &str = "\
Examples:
  drover nic list                     the NICs of all hosts: rate, cable or module, error correction
  drover nic list b                   those of one
  drover nic show b ens1f0            all modes, and what is the matter with its link
  drover nic show b ens1f0 --json | jq .nic.modes
  drover nic set b ens1f0 speed 10G   its rate; as before if the link does not come up again
  drover nic list --captured /tmp/b   of a host that was captured with `drover doctor capture`

";

const LIST_EXAMPLES: &str = "\
Examples:
  drover nic list
  drover nic list b
  drover nic list --json | jq -r '.nics[] | [.host, .name, .most] | @tsv'

";

const SHOW_EXAMPLES: &str = "\
Examples:
  drover nic show b ens1f0
  drover nic show b ens1f0 --json | jq .nic.facts.module

";

pub const AFTER: &str = "\
Nothing is changed. What a driver does not tell is left out, or said to be so.

Exit code: 0 shown, 1 an error, or a member that did not answer, 7 the agent does not answer.";

#[derive(Debug, Subcommand)]
pub enum NicCommand {
    /// List the NICs of all hosts, or of one: adapters, and others with an address
    #[command(before_help = LIST_EXAMPLES)]
    List {
        /// The host
        #[arg(value_name = "HOST")]
        host: Option<String>,
        #[command(flatten)]
        from: From,
    },
    /// Show everything that is known of a NIC's link
    #[command(before_help = SHOW_EXAMPLES)]
    Show {
        /// The host
        #[arg(value_name = "HOST")]
        host: String,
        /// The NIC
        #[arg(value_name = "IF")]
        nic: String,
        #[command(flatten)]
        from: From,
    },
    /// Set the rate or error correction of a NIC's link; it is as before if the link does not come up again
    #[command(before_help = set::EXAMPLES, after_help = set::AFTER)]
    Set(SetArgs),
}

/// Where it is read from.
#[derive(Debug, Args)]
pub struct From {
    /// Look at a host that `drover doctor capture` wrote down, instead of asking the agent; several times for several
    #[arg(long, value_name = "DIR")]
    captured: Vec<PathBuf>,
}

impl NicCommand {
    /// Whether it asks an agent.
    pub fn asks_an_agent(&self) -> bool {
        match self {
            Self::List { from, .. } | Self::Show { from, .. } => from.captured.is_empty(),
            Self::Set(_) => true,
        }
    }
}

/// `drover nic …`
pub async fn run(agent: &Agent, command: NicCommand) -> Result<Outcome, Failure> {
    match command {
        NicCommand::List { host, from } => {
            let mut asked = asked(agent, &from).await?;
            if let Some(name) = &host {
                asked.keep(name)?;
            }
            list(&asked)
        }
        NicCommand::Show { host, nic, from } => {
            let mut asked = asked(agent, &from).await?;
            asked.keep(&host)?;
            show(&asked.hosts, &nic)
        }
        NicCommand::Set(args) => set::run(agent, args).await,
    }
}

/// Hosts, and those that did not tell.
struct Asked {
    hosts: Vec<Host>,
    left_out: Vec<MemberLeftOut>,
}

impl Asked {
    /// Only the host of that name.
    fn keep(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(left) = self.left_out.iter().find(|left| left.host.as_str() == name) {
            let message = format!("host {name} did not tell: {}", left.why);
            return Err(Failure::new(exit::ERROR, "no-answer", message));
        }
        let names: Vec<String> = self.hosts.iter().map(|host| host.name.clone()).collect();
        self.hosts.retain(|host| host.name == name);
        self.left_out.clear();
        if self.hosts.is_empty() {
            let message = format!("there is no host {name:?}");
            return Err(Failure::new(exit::ERROR, "no-such-host", message)
                .next(format!("name one of these: {}", names.join(", "))));
        }
        Ok(())
    }
}

async fn asked(agent: &Agent, from: &From) -> Result<Asked, Failure> {
    if from.captured.is_empty() {
        let told = client(agent)?.cluster_facts().await;
        let told = told.map_err(Failure::of_reading)?;
        return Ok(Asked {
            hosts: told.facts,
            left_out: told.left_out,
        });
    }
    let hosts = from.captured.iter().map(|folder| captured_host(folder));
    Ok(Asked {
        hosts: hosts.collect::<Result<_, _>>()?,
        left_out: Vec::new(),
    })
}

/// An interface that carries packets itself and is the host's own; guests' ends are theirs.
fn is_listed(nic: &Nic) -> bool {
    match nic.kind {
        Kind::Adapter => true,
        Kind::Virtual => nic.is_addressed(),
        Kind::Bond | Kind::Bridge | Kind::Vlan => false,
    }
}

fn list(asked: &Asked) -> Result<Outcome, Failure> {
    let findings = examine(&asked.hosts, &[]).findings;
    let of_link =
        |finding: &Finding| finding.rule.starts_with("link-") && finding.subject.other.is_none();
    let findings: Vec<Finding> = findings.into_iter().filter(of_link).collect();
    let nics: Vec<(&Host, &Nic)> = asked
        .hosts
        .iter()
        .flat_map(|host| host.nics.iter().map(move |nic| (host, nic)))
        .filter(|(_, nic)| is_listed(nic))
        .collect();
    let documents: Result<Vec<Value>, Failure> =
        nics.iter().map(|(host, nic)| document(host, nic)).collect();
    let text = show::list(&nics, &findings, &asked.left_out);
    let parts = [
        ("nics", encoded(&documents?)?),
        ("findings", encoded(&findings)?),
        ("left_out", encoded(&asked.left_out)?),
    ];
    let outcome = Outcome::of_parts(text, &parts)?;
    Ok(if asked.left_out.is_empty() {
        outcome
    } else {
        outcome.with_exit(exit::ERROR)
    })
}

fn show(hosts: &[Host], name: &str) -> Result<Outcome, Failure> {
    let found = hosts.iter().find_map(|host| Some((host, host.nic(name)?)));
    let Some((host, nic)) = found else {
        let all = hosts.iter().flat_map(|host| &host.nics);
        let names: Vec<&str> = all.map(|nic| nic.name.as_str()).collect();
        let message = format!("there is no interface {name:?}");
        return Err(Failure::new(exit::ERROR, "no-such-nic", message)
            .next(format!("name one of these: {}", names.join(", "))));
    };
    let findings = examine(std::slice::from_ref(host), &[])
        .findings
        .into_iter();
    let of_it = |finding: &Finding| finding.subject.nic.as_deref() == Some(name);
    let findings: Vec<Finding> = findings.filter(of_it).collect();
    let mut nic_document = document(host, nic)?;
    nic_document["modes"] = encoded(&nic.link.known().map(|link| &link.modes))?;
    let parts = [("nic", nic_document), ("findings", encoded(&findings)?)];
    Outcome::of_parts(show::nic(host, nic, &findings), &parts)
}

/// What is told of an interface as values: its facts, whose they are, and the sentence about them.
fn document(host: &Host, nic: &Nic) -> Result<Value, Failure> {
    let facts = encoded(nic)?;
    Ok(json!({ "host": host.name, "name": nic.name, "most": most(nic), "facts": facts }))
}
