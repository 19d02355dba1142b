//! What has to hold before a change is begun.

use std::error::Error;
use std::path::Path;

use drover_api::{ErrorCode, Refusal};
use drover_change::{Account, Outcome, Phase, Plan};
use drover_tune::lasting::{ACTIVE_PROFILE, Rewrite};
use drover_types::{ChangeId, HostName, with_sources};

use crate::agent::Context;
use crate::libvirt::Present;
use crate::migration::Migrations;
use crate::present;

/// What makes a plan that fits.
const ANEW: &str = "`drover doctor plan -o FILE` on this host makes one that fits";

/// A plan that is none, or cannot be carried out anywhere.
pub fn unusable(error: &dyn Error) -> Refusal {
    Refusal::new(ErrorCode::ChangePlanUnusable, with_sources(error)).next(ANEW)
}

/// Whether a plan is for this host, as it runs now, and for this agent. Whether its settings are as it says is looked at by whoever
/// carries it out, right before.
///
/// # Errors
/// It is not.
pub fn fits(plan: &Plan, host: &HostName, boot: &str) -> Result<(), Refusal> {
    let version = env!("CARGO_PKG_VERSION");
    let message = if plan.host != *host {
        format!("the plan is for {}, and this is {host}", plan.host)
    } else if plan.version != version {
        let of = &plan.version;
        format!("the plan was made by version {of}, and this is version {version}")
    } else if plan.boot != boot {
        format!("{host} was restarted since the plan was made")
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::ChangePlanUnusable, message).next(ANEW))
}

/// Whether no guest is here, or can come, and no domain of libvirt's.
///
/// # Errors
/// One is, or can.
pub async fn drained(context: &Context, migrations: &Migrations) -> Result<(), Refusal> {
    let host = &context.config.host;
    let guests = present::guests(context, migrations).await?;
    let is_cordoned = context.cordon.view().is_some();
    let guests = guests.or_else(|| (!is_cordoned).then(|| format!("{host} takes guests")));
    not_drained(host, guests, context.libvirt.present()).map_or(Ok(()), Err)
}

/// `guests` says that there are some or may be.
fn not_drained(
    host: &HostName,
    guests: Option<String>,
    domains: Option<Present>,
) -> Option<Refusal> {
    let has_guests = guests.is_some();
    let drain = has_guests.then(|| format!("`drover drain {host}` first"));
    let (what, next) = domains.map(|Present { what, next }| (what, next)).unzip();
    let why: Vec<_> = guests.into_iter().chain(what).collect();
    if why.is_empty() {
        return None;
    }
    let why = why.join(", and ");
    let message = format!("links of {host} may go for some seconds by this, and {why}");
    let next: Vec<_> = drain.into_iter().chain(next.map(str::to_owned)).collect();
    let next = next.join("; ");
    Some(Refusal::new(ErrorCode::NotDrained, message).next(format!(
        "{next}, or add --force: guests lose their network, and migrations and storage stand still, for that long; and where larger packets are \
         tried that do not cross, for some 25 s"
    )))
}

/// Whether something of a change is there that can be taken back.
///
/// # Errors
/// Nothing is.
pub fn undoable(id: ChangeId, account: &Account, boot: &str) -> Result<(), Refusal> {
    let standing = &account.standing;
    let why = match &standing.phase {
        _ if standing.boot.is_some() && !standing.may_be_there(boot) => {
            "this host was restarted since, and what it set is gone with that"
        }
        Phase::Ended(Outcome::Applied { .. } | Outcome::InDoubt { .. }) => return Ok(()),
        Phase::Ended(Outcome::Refused { .. }) => "it was refused, and nothing was done",
        Phase::Ended(Outcome::RolledBack { .. }) => "it was taken back by itself",
        Phase::Ended(Outcome::Undone) => "it is undone already",
        Phase::Ended(Outcome::GoneWithRestart) => "what it set is gone with a restart",
        _ => "it is not at its end",
    };
    let message = format!("nothing of change {id} can be undone: {why}");
    Err(Refusal::new(ErrorCode::NotUndoable, message)
        .next("`drover doctor changes` shows which can be"))
}

/// A profile of tuned that was made is not removed while tuned uses it: the host would come up with none. Where the change has switched to it
/// that is put back first.
///
/// # Errors
/// One is in use.
pub fn no_profile_is_active(files: &[Rewrite], root: &Path) -> Result<(), Refusal> {
    if files.iter().any(|file| file.path == ACTIVE_PROFILE) {
        return Ok(());
    }
    let made = files.iter().filter(|file| file.before.is_none());
    let profile = |file: &Rewrite| {
        let path = file.path.strip_prefix("/etc/tuned/")?;
        let folders = path.strip_suffix("/tuned.conf")?;
        folders.rsplit('/').next().map(str::to_owned)
    };
    let active = std::fs::read_to_string(root.join("etc/tuned/active_profile")).unwrap_or_default();
    let is_active = |name: &String| active.split_whitespace().any(|active| active == name);
    let Some(name) = made.filter_map(profile).find(is_active) else {
        return Ok(());
    };
    let message = format!("tuned uses the profile {name}, which this change has made");
    let before = name.strip_suffix("-drover").unwrap_or_default();
    let next = format!("`tuned-adm profile {before}` first, as before");
    Err(Refusal::new(ErrorCode::NotUndoable, message).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_tuned_uses_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let made = |before: Option<&str>| Rewrite {
            by: "tuned".into(),
            path: "/etc/tuned/virtual-host-drover/tuned.conf".into(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            folders: Vec::new(),
            before: before.map(str::to_owned),
            after: "[sysctl]\n".into(),
        };
        let may = |before| no_profile_is_active(&[made(before)], root.path());
        may(None).unwrap();
        let folder = root.path().join("etc/tuned");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("active_profile"), "virtual-host-drover\n").unwrap();
        let refused = may(None).unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotUndoable);
        assert!(
            refused
                .next
                .unwrap()
                .contains("`tuned-adm profile virtual-host`")
        );
        // Where the change has switched to it, it switches back.
        let switch = Rewrite {
            path: ACTIVE_PROFILE.into(),
            before: Some("virtual-host\n".into()),
            after: "virtual-host-drover\n".into(),
            ..made(None)
        };
        no_profile_is_active(&[made(None), switch], root.path()).unwrap();
        let newer = Rewrite {
            path: "/etc/tuned/profiles/virtual-host-drover/tuned.conf".into(),
            ..made(None)
        };
        no_profile_is_active(&[newer], root.path()).unwrap_err();
        // One that was there before goes back to what it was.
        may(Some("")).unwrap();
        std::fs::write(folder.join("active_profile"), "virtual-host\n").unwrap();
        may(None).unwrap();
    }

    #[test]
    fn what_is_told_to_be_done_first_fits_those_who_use_the_links() {
        let host = "a".parse().unwrap();
        let domains = || Present {
            what: "libvirt has 1 of its domains in memory there: web".to_owned(),
            next: "a drain leaves them",
        };
        let takes = || Some("a takes guests".to_owned());
        let next = |guests, domains| not_drained(&host, guests, domains).unwrap().next.unwrap();
        assert_eq!(not_drained(&host, None, None), None);
        let of_guests = next(takes(), None);
        assert!(of_guests.starts_with("`drover drain a` first, or add"));
        let of_domains = next(None, Some(domains()));
        assert!(of_domains.starts_with("a drain leaves them, or add"));
        let both = not_drained(&host, takes(), Some(domains())).unwrap();
        assert_eq!(both.code, ErrorCode::NotDrained);
        let words = "and a takes guests, and libvirt has 1 of its domains";
        assert!(both.message.contains(words), "{both}");
        let begin = "`drover drain a` first; a drain leaves them, or";
        assert!(both.next.unwrap().starts_with(begin));
    }

    #[test]
    fn a_plan_of_another_host_version_or_start_does_not_fit() {
        let host: HostName = "a".parse().unwrap();
        let plan = Plan {
            host: host.clone(),
            boot: "now".into(),
            made_at: "2026-01-02T03:04:05Z".parse().unwrap(),
            version: env!("CARGO_PKG_VERSION").into(),
            changes: Vec::new(),
            lasting: None,
        };
        let why = |plan: &Plan| fits(plan, &host, "now").unwrap_err().message;
        fits(&plan, &host, "now").unwrap();
        let mut other = plan.clone();
        other.host = "b".parse().unwrap();
        assert!(why(&other).contains("for b"));
        let mut other = plan.clone();
        other.version = "0.0.0".into();
        assert!(why(&other).contains("version 0.0.0"));
        let mut other = plan;
        other.boot = "before".into();
        assert!(why(&other).contains("restarted"));
    }
}
