//! `drover cluster …`

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use drover_api::{
    ClusterView, CoordinatorRequest, JoinRequest, MemberView, OperatorRequest, TokenRequest,
};
use drover_trust::{KeyAndRequest, OperatorFile};
use drover_types::{HostName, OperatorName};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::{Agent, ClusterCommand};
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::show::{row, table};

/// `drover cluster …`
pub async fn run(agent: &Agent, command: ClusterCommand) -> Result<Outcome, Failure> {
    let asked = client(agent)?;
    let changed = Failure::of_changing;
    match command {
        ClusterCommand::Init => {
            let view = asked.cluster_init().await.map_err(changed)?;
            let text = format!(
                "{} is the authority of a new cluster, fingerprint {}\n  next: `drover cluster \
                 token` here, then `drover cluster join TOKEN` on each other host\n  keep a backup \
                 of the directory `trust` in the state directory: without its key no host can \
                 join or be renewed\n",
                view.host, view.fingerprint
            );
            Outcome::new(text, "cluster", &view)
        }
        ClusterCommand::Token { ttl } => {
            let request = TokenRequest {
                ttl_s: Some(ttl.as_secs()),
            };
            let view = asked.cluster_token(&request).await.map_err(changed)?;
            let text = format!("{}\n", view.token);
            if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
                eprintln!(
                    "good for one host until {:.0}; on that host: drover cluster join TOKEN",
                    view.expires_at
                );
            }
            Outcome::new(text, "token", &view)
        }
        ClusterCommand::Join { token } => {
            let request = JoinRequest { token };
            let view = asked.cluster_join(&request).await.map_err(changed)?;
            let text = format!(
                "{} joined the cluster of {}, {} hosts, fingerprint {}\n",
                view.host,
                view.authority,
                view.members.len(),
                view.fingerprint
            );
            Outcome::new(text, "cluster", &view)
        }
        ClusterCommand::Leave => {
            let view = asked.cluster_leave().await.map_err(changed)?;
            let text = format!(
                "{} left the cluster of {}: no other host believes it any more\n  definitions of guests stay here; \
                 `drover cluster join TOKEN` joins a cluster again\n  droverd's port stays open until it is restarted, and \
                 believes nobody meanwhile\n",
                view.host, view.authority
            );
            Outcome::new(text, "cluster", &view)
        }
        ClusterCommand::Status => {
            let view = asked.cluster().await.map_err(Failure::of_reading)?;
            Outcome::new(shown(&view), "cluster", &view)
        }
        ClusterCommand::Remove { name, operator } => remove(agent, &name, operator).await,
        ClusterCommand::Coordinator { host, revoke } => {
            let coordinates = !revoke;
            let request = CoordinatorRequest { coordinates };
            let view = asked.cluster_coordinator(&host, &request).await;
            let view = view.map_err(changed)?;
            let mut text = match coordinates {
                true => format!(
                    "{host} may coordinate, and the others take its orders\n  runs are kept in etcd from now on: \
                     `store.etcd` has to be set in droverd.toml on {}, and on {host}\n",
                    view.authority
                ),
                false => format!("{host} coordinates no longer\n"),
            };
            tell_who_is_late(&mut text, &view);
            Outcome::new(text, "cluster", &view)
        }
        ClusterCommand::Rotate => {
            let view = asked.cluster_rotate().await.map_err(changed)?;
            let text = format!(
                "{} has a new certificate, good until {:.0}\n",
                view.host, view.certificate.not_after
            );
            Outcome::new(text, "cluster", &view)
        }
        ClusterCommand::Operator { name, output } => operator(agent, &name, &output).await,
    }
}

async fn remove(agent: &Agent, name: &str, operator: bool) -> Result<Outcome, Failure> {
    let asked = client(agent)?;
    let wrong = |error: drover_types::InvalidName| {
        Failure::new(exit::REFUSED, "no-such-member", error.to_string())
    };
    let (what, view) = if operator {
        let name: OperatorName = name.parse().map_err(wrong)?;
        ("operator", asked.cluster_remove_operator(&name).await)
    } else {
        let name: HostName = name.parse().map_err(wrong)?;
        ("host", asked.cluster_remove(&name).await)
    };
    let view = view.map_err(Failure::of_changing)?;
    let mut text = format!("{what} {name} was removed: its certificates are worth nothing now\n");
    tell_who_is_late(&mut text, &view);
    Outcome::new(text, "cluster", &view)
}

fn tell_who_is_late(text: &mut String, view: &ClusterView) {
    for member in view.members.iter().filter(|member| is_late(member)) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "  {} could not be told; it asks for itself every 30 s, once it reaches {}",
            member.host, view.host
        );
    }
}

fn is_late(member: &MemberView) -> bool {
    member.up_to_date == Some(false)
}

/// The key is made here, and never leaves this process but into the file.
async fn operator(agent: &Agent, name: &OperatorName, output: &Path) -> Result<Outcome, Failure> {
    let shown = output.display();
    let failed = |error: &dyn std::fmt::Display| Failure::error(error.to_string());
    let own = KeyAndRequest::generate().map_err(|error| failed(&error))?;
    let cannot = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::error(format!("{shown} is there already"))
            .next("choose another file, or remove that one"),
        _ => Failure::error(format!("cannot write {shown}: {error}")),
    };
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(output)
        .map_err(cannot)?;
    let request = OperatorRequest {
        request: own.request,
    };
    let signed = client(agent)?.cluster_operator(name, &request).await;
    let written = signed.map_err(Failure::of_changing).and_then(|signed| {
        let content = OperatorFile {
            key: own.key,
            certificate: signed.certificate,
            authority: signed.authority,
            hosts: signed.hosts,
        };
        let text = content.to_text().map_err(|error| failed(&error))?;
        file.write_all(text.as_bytes()).map_err(cannot)?;
        Ok(signed.not_after)
    });
    if written.is_err() {
        // Ours, and of no use.
        let _ = std::fs::remove_file(output);
    }
    let not_after = written?;
    let text = format!(
        "{shown}: operator {name} may give every order until {not_after:.0}\n  use it with `drover \
         --agent https://HOST --identity {shown} ...`; keep it secret; `drover cluster remove \
         {name} --operator` ends it\n"
    );
    let document = json!({ "name": name, "file": output, "not_after": not_after });
    Outcome::new(text, "operator", &document)
}

/// `drover cluster status`
fn shown(view: &ClusterView) -> String {
    let now = Timestamp::now();
    let certificate = &view.certificate;
    let rows = [
        row(&["host", view.host.as_str()]),
        row(&["authority", view.authority.as_str()]),
        row(&["fingerprint", &view.fingerprint.to_string()]),
        row(&["certificate", &good_until(certificate.not_after, now)]),
        row(&["renewal", &format!("{:.0}", certificate.renew_at)]),
    ];
    let mut text = table(&rows);
    let mut members = vec![row(&["HOST", "ROLE", "CERTIFICATE", "ADDRESSES"])];
    for member in &view.members {
        let addresses: Vec<_> = member.addresses.iter().map(ToString::to_string).collect();
        let role = if member.host == view.authority {
            "authority"
        } else if view.coordinators.contains(&member.host) {
            "coordinator"
        } else {
            "member"
        };
        let until = member.not_after.map(|until| good_until(until, now));
        members.push(vec![
            member.host.to_string(),
            role.to_owned(),
            until.unwrap_or_else(|| "-".to_owned()),
            addresses.join(" "),
        ]);
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "\n{}", table(&members));
    for member in view.members.iter().filter(|member| is_late(member)) {
        let _ = writeln!(text, "{}: has not heard the newest yet", member.host);
    }
    for operator in &view.operators {
        let until = good_until(operator.not_after, now);
        let _ = writeln!(text, "operator {}: {until}", operator.name);
    }
    for removed in &view.removed {
        let _ = writeln!(text, "{}: removed {:.0}", removed.who, removed.at);
    }
    if let Some(tokens @ 1..) = view.open_tokens {
        let s = if tokens == 1 { "" } else { "s" };
        let _ = writeln!(text, "{tokens} join token{s} can still be used");
    }
    if let Some(problem) = &view.problem {
        let _ = writeln!(text, "problem: {problem}");
        if let Some(next) = &problem.next {
            let _ = writeln!(text, "  next: {next}");
        }
    }
    text
}

fn good_until(until: Timestamp, now: Timestamp) -> String {
    let left = until.duration_since(now);
    let words = match left.as_secs() {
        ..0 => "EXPIRED".to_owned(),
        0..172_800 => format!("{} h left", left.as_hours()),
        days => format!("{} d left", days / 86_400),
    };
    format!("{until:.0} ({words})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_shown_with_the_time_that_is_left() {
        let now: Timestamp = "2026-11-21T00:00:00Z".parse().unwrap();
        for (until, words) in [
            ("2026-12-21T00:00:00Z", "(30 d left)"),
            ("2026-11-21T05:30:00Z", "(5 h left)"),
            ("2026-11-20T23:59:59Z", "(EXPIRED)"),
        ] {
            let shown = good_until(until.parse().unwrap(), now);
            assert!(shown.ends_with(words), "{shown}");
        }
    }
}
