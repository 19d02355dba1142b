//! `drover nic set`: a link as somebody wants it, or as it was.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use drover_api::{Client, LinkRequest, LinkSetting};
use drover_types::HostName;

use super::show;
use crate::cli::Agent;
use crate::command::{Outcome, client, encoded};
use crate::doctor::{Ordered, applied, clean, not_begun, to_its_end};
use crate::failure::Failure;

pub const EXAMPLES: &str = "\
Examples:
  drover nic set b ens1f0 speed 10G     offered alone, or by hand where nothing is negotiated
  drover nic set b ens1f0 speed 10G-forced   by hand, for a port that was set to 10G as well
  drover nic set b ens1f0 speed auto    agreed on, of all that this end can
  drover nic set b ens1f0 fec rs        auto, off, rs, baser or llrs
  drover nic set b ens1f0 speed 1G --force

";

pub const AFTER: &str = "\
What is set now is written down first. The link has to come up again within 20 s, and other hosts
have to be reached as before; otherwise all is as it was. That is done by a process of its own on
the host, which goes on whatever becomes of this command, the agents and the network. It lasts
until the host is restarted, or until `drover doctor undo` on it.

The link goes for some seconds: the host has to be drained, or --force given. Of another host than
the agent's it is ordered by this agent, which has to be one that may coordinate.

Exit code: 0 set, 1 as before, 4 refused, 6 something else was set there meanwhile, 7 the agent does
not answer, or what became of it is not known.";

#[derive(Debug, Args)]
pub struct SetArgs {
    /// The host
    #[arg(value_name = "HOST")]
    host: HostName,
    /// The NIC
    #[arg(value_name = "IF")]
    nic: String,
    /// What is set
    #[arg(value_name = "SETTING")]
    setting: Setting,
    /// To what: a rate such as 10G, the same by hand (10G-forced), a correction, or auto
    #[arg(value_name = "TO")]
    to: String,
    /// Also on a host that is not drained
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Setting {
    /// Its rate
    Speed,
    /// How errors are corrected
    Fec,
}

pub async fn run(agent: &Agent, args: SetArgs) -> Result<Outcome, Failure> {
    let client = client(agent)?;
    let SetArgs { host, nic, .. } = &args;
    let request = LinkRequest {
        nic: nic.clone(),
        setting: match args.setting {
            Setting::Speed => LinkSetting::Speed,
            Setting::Fec => LinkSetting::Fec,
        },
        to: args.to.clone(),
        force: args.force,
    };
    let begun = client.set_link_of(host, &request).await;
    let ordered = Ordered::Link { host, nic };
    let begun = begun.map_err(|error| not_begun(error, ordered))?;
    let mut said = String::new();
    for warning in &begun.warnings {
        let _ = writeln!(said, "warning: {}", clean(warning));
    }
    let view = to_its_end(&client, begun.change.id, ordered).await?;
    match applied(&view, ordered) {
        Ok(text) => {
            said += &text;
            said += &now(&client, host, nic).await;
            let parts = [
                ("change", encoded(&view)?),
                ("warnings", encoded(&begun.warnings)?),
            ];
            Outcome::of_parts(said, &parts)
        }
        Err(failure) => Err(failure.with("warnings", &begun.warnings).said(said)),
    }
}

/// What the link has come to: another rate than was wanted, perhaps, if the other end had a say.
async fn now(client: &Client, host: &HostName, nic: &str) -> String {
    let told = client.cluster_facts().await.ok();
    let hosts = told.map(|told| told.facts).unwrap_or_default();
    let of = hosts.iter().find(|facts| facts.name == host.as_str());
    of.and_then(|facts| facts.nic(nic)).map_or_else(
        || format!("what the link of {} is now was not told\n", clean(&nic)),
        |found| {
            format!(
                "{} of {host} is {}\n",
                clean(&nic),
                clean(&show::in_words(found))
            )
        },
    )
}
