//! Files as they are before and after, so that what is written can be shown, looked at again and taken back.

use serde::{Deserialize, Serialize};

use super::{How, Lasting, edited};

/// What is at a file's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What is in it; `None` if there is no file.
    pub text: Option<String>,
    /// Its mode; of one that is not there that which it gets.
    pub mode: u32,
    /// Whose it is, or will be.
    pub uid: u32,
    /// Whose group's.
    pub gid: u32,
    /// Folders on the way to it that are not there, the outermost first.
    pub folders: Vec<String>,
}

/// A file that is rewritten so that settings last. Its mode and owner stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewrite {
    /// Who reads it when the host comes up.
    pub by: String,
    /// Its path, from the root.
    pub path: String,
    /// Its mode, before and after.
    pub mode: u32,
    /// Whose it is.
    pub uid: u32,
    /// Whose group's.
    pub gid: u32,
    /// Folders that are made for it, the outermost first; taken back with it if nothing else is in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    /// What is in it before; `None` if there is no file.
    pub before: Option<String>,
    /// What is in it after.
    pub after: String,
}

/// How a file, or a setting, is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// As it was before, or not there.
    Before,
    /// As the plan has it.
    After,
}

impl Rewrite {
    /// Whether all is as it was before.
    #[must_use]
    pub fn is_before(&self, place: &Place) -> bool {
        place.text == self.before && (self.before.is_none() || self.is_alike(place))
    }

    /// Whether all is as it was written.
    #[must_use]
    pub fn is_after(&self, place: &Place) -> bool {
        place.text.as_ref() == Some(&self.after) && self.is_alike(place)
    }

    fn is_alike(&self, place: &Place) -> bool {
        (self.mode, self.uid, self.gid) == (place.mode, place.uid, place.gid)
    }

    /// Lines that go, and lines that come, as they may be shown.
    #[must_use]
    pub fn lines(&self) -> (Vec<String>, Vec<String>) {
        let before = self.before.as_deref().unwrap_or_default();
        (without(before, &self.after), without(&self.after, before))
    }

    /// In which way a place is not as it has to be, in words.
    #[must_use]
    pub fn differs(&self, place: &Place) -> String {
        let Place { mode, uid, gid, .. } = place;
        let known = [self.before.as_ref(), Some(&self.after)];
        match &place.text {
            None => "the file is gone".to_owned(),
            text if known.contains(&text.as_ref()) => {
                if self.is_alike(place) {
                    return "it has been written already".to_owned();
                }
                format!("its mode is {mode:04o} and its owner {uid}:{gid}")
            }
            Some(_) if self.before.is_none() => "there is a file".to_owned(),
            Some(_) => "its text is another one".to_owned(),
        }
    }
}

/// Lines of one text that the other one has not, or not as often.
fn without(text: &str, other: &str) -> Vec<String> {
    let mut others: Vec<&str> = other.lines().collect();
    let mut only = Vec::new();
    for line in text.lines() {
        match others.iter().position(|other| *other == line) {
            Some(at) => drop(others.swap_remove(at)),
            None => only.push(line.trim().replace(char::is_control, " ")),
        }
    }
    only
}

/// What people have to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByHand {
    /// What.
    pub what: Lasting,
    /// Why it is not written.
    pub why: String,
}

/// What can be written, one for each file; and what people have to do. What is there already is neither.
#[must_use]
pub fn rewrites(
    told: Vec<Lasting>,
    look: impl Fn(&str) -> Result<Place, String>,
) -> (Vec<Rewrite>, Vec<ByHand>) {
    let mut all = Vec::new();
    let mut by_hand = Vec::new();
    for what in told {
        let taken = check_chosen(&by_hand, &what).and_then(|()| take(&mut all, &what, &look));
        if let Err(why) = taken {
            by_hand.push(ByHand { what, why });
        }
    }
    (all, by_hand)
}

/// A file that is left to people is not there until they have made it, and may not be chosen before. It comes first.
fn check_chosen(by_hand: &[ByHand], what: &Lasting) -> Result<(), String> {
    let How::Choice { of, .. } = &what.how else {
        return Ok(());
    };
    let is_of = |one: &ByHand| matches!(&one.what.how, How::File { path, .. } if path == of);
    match by_hand.iter().any(is_of) {
        true => Err(format!("{of} has to be as above first")),
        false => Ok(()),
    }
}

fn take(
    all: &mut Vec<Rewrite>,
    what: &Lasting,
    look: impl Fn(&str) -> Result<Place, String>,
) -> Result<(), String> {
    let (How::File { path, .. } | How::Choice { path, .. } | How::Lines { path, .. }) = &what.how
    else {
        let why = what.because.clone();
        return Err(why.unwrap_or_else(|| "no commands are run".to_owned()));
    };
    check_folder(path)?;
    if let Some(one) = all.iter_mut().find(|one| one.path == *path) {
        let both = edited(Some(&one.after), &what.how)?;
        let ours = without(&one.after, one.before.as_deref().unwrap_or_default());
        if without(&one.after, &both)
            .iter()
            .any(|gone| ours.contains(gone))
        {
            return Err("the file is to say something else for another interface".to_owned());
        }
        one.after = both;
        return Ok(());
    }
    let place = look(path)?;
    if path.ends_with(".link") && place.text.as_deref().is_some_and(|text| !is_of_one(text)) {
        return Err("it may be about other interfaces, too".to_owned());
    }
    let after = edited(place.text.as_deref(), &what.how)?;
    if place.text.as_ref() == Some(&after) {
        return Ok(());
    }
    // Folders that one makes are there for the next.
    let is_made = |folder: &String| all.iter().any(|one| one.folders.contains(folder));
    let folders = place.folders.into_iter().filter(|folder| !is_made(folder));
    let folders = folders.collect();
    all.push(Rewrite {
        by: what.by.to_string(),
        path: path.clone(),
        mode: place.mode,
        uid: place.uid,
        gid: place.gid,
        folders,
        before: place.text,
        after,
    });
    Ok(())
}

/// Whether a `.link` is for one interface for certain: by its address, its place or its name, one and without signs that stand for others.
/// Source: systemd.link(5), "\[Match\] section options".
fn is_of_one(text: &str) -> bool {
    let lines = text.lines().map(str::trim);
    let of_match = lines.skip_while(|line| *line != "[Match]").skip(1);
    let mut of_match = of_match.take_while(|line| !line.starts_with('['));
    of_match.any(|line| {
        let (key, value) = line.split_once('=').unwrap_or_default();
        let names = ["MACAddress", "PermanentMACAddress", "Path", "OriginalName"];
        let value = value.trim();
        let is_one = !value.is_empty() && !value.contains([' ', '\t', '*', '?', '[', '!']);
        names.contains(&key.trim()) && is_one
    })
}

/// What comes with a package is its own, and what is below `/run` is gone with the restart.
fn check_folder(path: &str) -> Result<(), String> {
    if path.starts_with("/etc/") {
        return Ok(());
    }
    if path.starts_with("/run/") {
        return Err(format!("{path} is made anew at each start"));
    }
    Err(format!(
        "{path} comes with the system, and goes with its next version"
    ))
}
