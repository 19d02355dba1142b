//! Settings of the kernel: sysctl.d, and tuned. Source: sysctl.d(5), tuned-profiles(7).

use std::collections::BTreeMap;

use super::{How, Lasting, Owners, SettingOwner, Tuned};
use crate::change::quoted;

/// What tuned starts with: one line, of all profiles that are active.
pub const ACTIVE_PROFILE: &str = "/etc/tuned/active_profile";

/// Ours. Files are read in the order of their names, and the last one that sets something has the say.
const FILE: &str = "/etc/sysctl.d/90-drover.conf";

/// What the name of a profile of ours ends with.
const OURS: &str = "-drover";

pub(super) fn told(settings: &BTreeMap<String, String>, owners: &Owners) -> Vec<Lasting> {
    let mut own = Vec::new();
    let mut told = Vec::new();
    let mut of_tuned: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in settings {
        let line = format!("{name} = {value}");
        match owners.settings.get(name) {
            Some(SettingOwner::Tuned { profile }) => {
                let line = format!("{name}={value}");
                of_tuned.entry(profile).or_default().push(line);
            }
            Some(SettingOwner::File { path }) if comes_after_ours(path) => {
                let (path, part) = (path.clone(), None);
                let lines = vec![line];
                let how = How::Lines { path, part, lines };
                told.push(Lasting::by("sysctl.d", how));
            }
            _ => own.push(line),
        }
    }
    if !own.is_empty() {
        told.insert(0, in_ours(own, owners));
    }
    for (profile, lines) in of_tuned {
        told.extend(tuned(profile, lines, &owners.tuned));
    }
    told
}

/// What a line of sysctl.d sets, such as `net.ipv4.tcp_rmem` of `-net/ipv4/tcp_rmem = 1 2 3`.
#[must_use]
pub fn sysctl_name(line: &str) -> Option<String> {
    let line = line.trim();
    let (name, _) = line
        .split_once('=')
        .filter(|_| !line.starts_with(['#', ';']))?;
    Some(name.trim().trim_start_matches('-').replace('/', "."))
}

/// What is in it of earlier plans stays.
fn in_ours(lines: Vec<String>, owners: &Owners) -> Lasting {
    let is_ours =
        |owner: &SettingOwner| matches!(owner, SettingOwner::File { path } if path == FILE);
    let path = FILE.to_owned();
    let how = if owners.settings.values().any(is_ours) {
        let part = None;
        How::Lines { path, part, lines }
    } else {
        How::File { path, lines }
    };
    Lasting::by("sysctl.d", how)
}

/// Names count, not folders.
fn comes_after_ours(path: &str) -> bool {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    name(path) > name(FILE)
}

/// A profile that does what the active one does, and this, with which tuned starts from then on; or this within ours, if that is active.
fn tuned(profile: &str, lines: Vec<String>, found: &Tuned) -> Vec<Lasting> {
    let by = "tuned";
    let of = |name: &str| format!("{}/{name}/tuned.conf", found.folder);
    if profile.ends_with(OURS) {
        let (path, part) = (of(profile), Some("[sysctl]".to_owned()));
        return vec![Lasting::by(by, How::Lines { path, part, lines })];
    }
    let ours = format!("{profile}{OURS}");
    let (path, chosen) = (of(&ours), of(&ours));
    let head = ["[main]".to_owned(), format!("include={profile}")];
    let body = [String::new(), "[sysctl]".to_owned()];
    let lines = head.into_iter().chain(body).chain(lines).collect();
    let made = Lasting::by(by, How::File { path, lines });
    let others = found
        .active
        .split_last()
        .map_or(&[][..], |(_, others)| others);
    let active: Vec<String> = others.iter().cloned().chain([ours]).collect();
    let words: Vec<String> = active.iter().map(|name| quoted(name)).collect();
    let command = format!("tuned-adm profile {}", words.join(" "));
    let switched = match &found.chosen_elsewhere {
        None => {
            let choice = How::Choice {
                path: ACTIVE_PROFILE.to_owned(),
                lines: vec![active.join(" ")],
                of: chosen,
                command,
            };
            Lasting::by(by, choice)
        }
        Some(why) => Lasting::by(by, How::Commands(vec![command])).because(why.clone()),
    };
    vec![made, switched]
}
