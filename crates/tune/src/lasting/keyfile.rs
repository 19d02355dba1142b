//! Which file has a profile of NetworkManager, and whether lines may be put into it.
//!
//! Sources: nm-settings-keyfile(5); for what has precedence, `nms-keyfile-storage.c`; for names that are passed over, `nm-keyfile.c`
//! (`nm_keyfile_utils_ignore_filename`); for types that take the MTU of the part `[ethernet]`, `nm_device_get_configured_mtu_for_wired`.

use super::check_place;

/// Folders with files of profiles: below the first ones is what has precedence.
pub const FOLDERS: [&str; 3] = [
    "/run/NetworkManager/system-connections",
    "/etc/NetworkManager/system-connections",
    "/usr/lib/NetworkManager/system-connections",
];

/// What a part about Ethernet is called: both are the same to NetworkManager.
const ETHERNET: [&str; 2] = ["[ethernet]", "[802-3-ethernet]"];

/// Types of profiles in whose files lines about Ethernet and of ethtool are for the interface itself.
const TYPES: [&str; 6] = [
    "ethernet",
    "802-3-ethernet",
    "bond",
    "bridge",
    "team",
    "vlan",
];

/// A file with a profile that may be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyfile {
    /// Its path, from the root.
    pub path: String,
    /// How its part about Ethernet begins, or is to begin.
    pub ethernet: String,
}

/// A file of a profile as it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its path, from the root.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Whether NetworkManager takes a file of this name for a profile.
#[must_use]
pub fn is_keyfile(folder: &str, name: &str) -> bool {
    if name.starts_with('.') {
        return false;
    }
    if !folder.starts_with("/etc/") {
        return name.len() > ".nmconnection".len() && name.ends_with(".nmconnection");
    }
    let lower = name.to_ascii_lowercase();
    let is_of_programs = name.rsplit_once('.').is_some_and(|(_, end)| {
        end.len() == 6 && end.bytes().all(|sign| sign.is_ascii_alphanumeric())
    });
    !(name.ends_with('~') || lower.ends_with(".pem") || lower.ends_with(".der") || is_of_programs)
}

/// Whether NetworkManager only looks on at an interface that somebody else has set up: the profile is of its own making.
#[must_use]
pub fn is_looked_on_at(uuid: &str, found: &[Found]) -> bool {
    let mut of = found.iter().filter(|file| is_of(file, uuid));
    of.any(|file| {
        let value = value(&file.text, "[.nmmeta]", "external");
        file.path.starts_with(FOLDERS[0]) && value == Some("true")
    })
}

/// What NetworkManager goes by in place of a profile's file with this text below `/etc`: what somebody has changed in its memory alone since.
#[must_use]
pub fn shadow<'a>(text: &str, found: &'a [Found]) -> Option<&'a str> {
    let uuid = value(text, "[connection]", "uuid")?;
    let mut over = found
        .iter()
        .filter(|file| file.path.starts_with(FOLDERS[0]));
    let over = over.find(|file| is_of(file, uuid))?;
    Some(&over.path)
}

/// The file of this profile, of all files that there are.
///
/// # Errors
/// Why it is not written, but `nmcli` is to be told.
pub fn keyfile(uuid: &str, found: &[Found]) -> Result<Keyfile, String> {
    let of_profile = |folder: &str| -> Vec<&Found> {
        let is_there = |file: &&Found| file.path.starts_with(folder) && is_of(file, uuid);
        found.iter().filter(is_there).collect()
    };
    let [run, etc, lib] = FOLDERS.map(of_profile);
    if let Some(file) = run.first() {
        if file.path.contains("netplan") {
            check_place(&file.path)?;
        }
        return Err(format!(
            "NetworkManager has the profile in its memory alone ({})",
            file.path
        ));
    }
    match (&etc[..], lib.first()) {
        ([file], _) => written(file),
        ([one, other, ..], _) => Err(format!("{} and {} are one profile", one.path, other.path)),
        ([], Some(file)) => Err(format!(
            "{} comes with the system, and goes with its next version: a copy has to take its place",
            file.path
        )),
        ([], None) => Err(format!("no file of {} has the profile", FOLDERS[1])),
    }
}

fn written(file: &Found) -> Result<Keyfile, String> {
    let Found { path, text } = file;
    let of_connection = |key: &str| value(text, "[connection]", key).unwrap_or_default();
    let kind = of_connection("type");
    if !TYPES.contains(&kind) {
        return Err(format!("{path} is of type {kind:?}"));
    }
    let is_there = |part: &&str| text.lines().any(|line| line.trim() == *part);
    let mut parts = ETHERNET.into_iter().filter(is_there);
    let ethernet = parts.next().unwrap_or(ETHERNET[0]);
    if parts.next().is_some() {
        return Err(format!("{path} has two parts about Ethernet"));
    }
    let of_one = [
        of_connection("interface-name"),
        value(text, ethernet, "mac-address").unwrap_or_default(),
    ];
    if of_one.iter().all(|value| value.is_empty()) {
        return Err(format!(
            "{path} may be about other interfaces, too: it has neither interface-name nor mac-address"
        ));
    }
    Ok(Keyfile {
        path: path.clone(),
        ethernet: ethernet.to_owned(),
    })
}

fn is_of(file: &Found, uuid: &str) -> bool {
    let found = value(&file.text, "[connection]", "uuid");
    found.is_some_and(|found| found.eq_ignore_ascii_case(uuid))
}

/// What a key is given in a part; the last one has the say.
fn value<'a>(text: &'a str, part: &str, key: &str) -> Option<&'a str> {
    let mut is_in = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_in = line == part;
        } else if is_in && let Some((name, value)) = line.split_once('=') {
            found = (name.trim() == key).then(|| value.trim()).or(found);
        }
    }
    found
}
