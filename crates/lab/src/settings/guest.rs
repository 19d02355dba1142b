//! What a guest of a lab is, and what it is called.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Result, bail};
use drover_probe::settings::{PAGE, Rate};
use drover_types::{Bytes, VmName};
use serde::{Deserialize, Serialize};

use super::{Contents, LocalDisk};

/// How the guest rewrites its memory, from `16MiB@64MiB`, `16MiB@max` or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dirty {
    /// The part that is rewritten in turn.
    pub working_set: Bytes,
    /// Bytes of pages a second; `None` is as fast as the guest can.
    pub rate: Option<Bytes>,
}

impl Dirty {
    /// How fast, as the probe is told.
    pub(super) fn probe(self) -> Rate {
        self.rate.map_or(Rate::Max, |rate| Rate::Bytes(rate.0))
    }
}

impl FromStr for Dirty {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self {
                working_set: Bytes(0),
                rate: Some(Bytes(0)),
            });
        }
        let Some((size, rate)) = text.split_once('@') else {
            bail!("{text:?} is no dirty rate: write 16MiB@64MiB (a second), 16MiB@max or none");
        };
        let rate = match rate {
            "max" => None,
            rate => Some(rate.strip_suffix("/s").unwrap_or(rate).parse()?),
        };
        Ok(Self {
            working_set: size.parse()?,
            rate,
        })
    }
}

impl TryFrom<String> for Dirty {
    type Error = anyhow::Error;
    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Dirty> for String {
    fn from(dirty: Dirty) -> Self {
        match (dirty.working_set.0, dirty.rate) {
            (0, _) => "none".to_owned(),
            (set, None) => format!("{set}@max"),
            (set, Some(rate)) => format!("{set}@{}", rate.0),
        }
    }
}

impl fmt::Display for Dirty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.working_set.0, self.rate) {
            (0, _) => f.write_str("nothing rewritten"),
            (_, None) => write!(f, "{} rewritten as fast as it can", self.working_set),
            (_, Some(rate)) => write!(f, "{} rewritten at {rate}/s", self.working_set),
        }
    }
}

/// The guest of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestSettings {
    /// The QEMU that runs it.
    pub qemu: PathBuf,
    /// Its machine type.
    pub machine: String,
    /// Its memory.
    pub memory: Bytes,
    /// Its virtual CPUs.
    pub vcpus: u32,
    /// The part of the memory that is filled and verified.
    pub content: Bytes,
    /// With what.
    #[serde(default)]
    pub contents: Contents,
    /// What the probe's own pages hold: shares as [`drover_probe::content::Mix`] reads them.
    pub mix: String,
    /// Of 100 pages of it, those that every guest of the lab has, as guests of one image do.
    #[serde(default)]
    pub common: u8,
    /// What of it is rewritten.
    pub dirty: Dirty,
    /// Bytes changed each time a page is rewritten.
    pub touch: u32,
    /// Bytes a second that it verifies while nobody asks for more.
    #[serde(default = "unasked")]
    pub verify: Bytes,
    /// Everything random follows from it.
    pub seed: u64,
    /// A disk of its own, where it is a domain of libvirt's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<LocalDisk>,
}

/// What a guest that was not told otherwise verifies.
fn unasked() -> Bytes {
    Bytes(drover_probe::settings::Settings::default().verify)
}

/// Memory that the kernel, the programs and the corpus need beside the content. Seen: a guest of
/// 256 MiB takes 170 MiB of content and no more.
const OWN_MEMORY: u64 = 88 << 20;

/// Kept by the kernel for each page of memory (`struct page` and the like), as a part of it.
const KEPT_PART: u64 = 32;

/// What an idle guest uses itself, `struct page` left out. Seen: one of 512 MiB with 50 MiB of files
/// had pages of 124 MiB to move.
const IDLE_OWN: u64 = 66 << 20;

/// The part of the memory that `struct page` takes: 64 bytes for each page.
const PAGE_STRUCTS: u64 = 64;

/// What a guest's memory is a multiple of, where it follows from its contents.
const MEMORY_STEP: u64 = 64 << 20;

impl GuestSettings {
    /// An idle guest of so much memory has so much content, the rest of what it uses is its own.
    ///
    /// # Errors
    /// Its own is more than it may use.
    pub fn content_when_idle(memory: Bytes) -> Result<Bytes> {
        let used = Contents::used_when_idle(memory);
        let own = IDLE_OWN + memory.0 / PAGE_STRUCTS;
        match used.0.checked_sub(own) {
            Some(content) if content > 0 => Ok(Bytes(content)),
            _ => bail!(
                "a guest of {memory} cannot be idle: of the {used} that it may use it needs {} itself",
                Bytes(own)
            ),
        }
    }

    /// What it is filled with, for a person.
    #[must_use]
    pub fn contents_in_words(&self) -> String {
        match self.contents {
            Contents::Mix => format!("{} of content ({})", self.content, self.mix),
            other => format!("{} of {other} contents", self.content),
        }
    }

    /// What is filled in all: of contents that are not the probe's own pages, the working set and
    /// the program that holds them are beside them.
    #[must_use]
    pub fn filled(&self) -> Bytes {
        match self.contents {
            Contents::Mix => self.content,
            other => {
                let beside = self.dirty.working_set.0 + other.program().0;
                Bytes(self.content.0 + beside)
            }
        }
    }

    /// Memory that is enough for so much content.
    #[must_use]
    pub fn memory_for(content: Bytes) -> Bytes {
        let own = (content.0 + OWN_MEMORY) / (KEPT_PART - 1) * KEPT_PART + KEPT_PART;
        Bytes(own.next_multiple_of(MEMORY_STEP))
    }

    /// What the probe is told.
    ///
    /// # Errors
    /// A mix that is none, or contents that do not fit the memory.
    pub fn probe(&self) -> Result<drover_probe::settings::Settings> {
        let room = self
            .memory
            .0
            .saturating_sub(OWN_MEMORY + self.memory.0 / KEPT_PART);
        let filled = self.filled();
        if filled.0 > room {
            bail!(
                "{filled} of content do not fit a guest of {}: at most {}",
                self.memory,
                Bytes(room)
            );
        }
        let pages = |bytes: Bytes| usize::try_from(bytes.0).map(|bytes| bytes / PAGE);
        let own = match self.contents {
            Contents::Mix => self.content,
            _ => self.dirty.working_set,
        };
        Ok(drover_probe::settings::Settings {
            seed: self.seed,
            pages: pages(own)?.max(1),
            mix: self.mix.parse()?,
            common: self.common,
            working_set: pages(self.dirty.working_set)?,
            rewrite: self.dirty.probe(),
            touch: usize::try_from(self.touch)?.clamp(8, PAGE),
            verify: self.verify.0,
            holds: self.contents.holds(self.content),
            disk: self.disk.as_ref().map(LocalDisk::probe).transpose()?,
        })
    }
}

/// The name of a lab's only guest, and what the names of several begin with.
pub const GUEST: &str = "guest";

/// A guest's name and what it is.
pub(crate) type Named = (VmName, GuestSettings);

/// Gives guests their names: the word, of several with a number from 1.
///
/// # Errors
/// A word that no name can begin with.
pub(crate) fn named(word: &str, guests: &[GuestSettings]) -> Result<Vec<Named>> {
    let name = |number: usize| match guests.len() {
        1 => word.parse(),
        _ => format!("{word}{}", number + 1).parse(),
    };
    let numbered = guests.iter().enumerate();
    numbered
        .map(|(number, guest)| Ok((name(number)?, guest.clone())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(memory: Bytes, content: Bytes) -> GuestSettings {
        GuestSettings {
            qemu: "/usr/bin/qemu-system-x86_64".into(),
            machine: "q35".into(),
            memory,
            vcpus: 1,
            content,
            contents: Contents::Mix,
            mix: "files=1".into(),
            common: 0,
            dirty: "none".parse().unwrap(),
            touch: 512,
            verify: Bytes(32 << 20),
            seed: 1,
            disk: None,
        }
    }

    #[test]
    fn dirty_rates_are_read_as_people_write_them_and_kept_in_json() {
        for text in ["16MiB@64MiB", "16MiB@64MiB/s", "8MiB@max", "none"] {
            let dirty: Dirty = text.parse().unwrap();
            let json = serde_json::to_string(&dirty).unwrap();
            assert_eq!(serde_json::from_str::<Dirty>(&json).unwrap(), dirty);
        }
        assert!("16MiB".parse::<Dirty>().is_err());
    }

    #[test]
    fn only_several_guests_have_numbers() {
        let guest = guest(Bytes(256 << 20), Bytes(64 << 20));
        let names = |count: usize| -> Vec<String> {
            let all = named(GUEST, &vec![guest.clone(); count]).unwrap();
            all.iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(1), ["guest"]);
        assert_eq!(names(3), ["guest1", "guest2", "guest3"]);
    }

    #[test]
    fn memory_that_follows_from_contents_is_enough_for_them_and_not_much_more() {
        for content in [1u64, 64, 100, 640, 4096] {
            let content = Bytes(content << 20);
            let memory = GuestSettings::memory_for(content);
            let room = memory.0 - OWN_MEMORY - memory.0 / KEPT_PART;
            assert!(room >= content.0, "{memory} for {content}");
            assert!(room < content.0 + 2 * MEMORY_STEP, "{memory} for {content}");
        }
    }

    #[test]
    fn of_other_contents_the_probe_has_the_working_set_alone() {
        let mut guest = guest(Bytes(1 << 30), Bytes(640 << 20));
        guest.dirty = "16MiB@64MiB".parse().unwrap();
        assert_eq!(guest.probe().unwrap().pages, (640 << 20) / PAGE);
        guest.contents = Contents::Userland;
        let probe = guest.probe().unwrap();
        assert_eq!(probe.pages, (16 << 20) / PAGE);
        assert_eq!(guest.filled(), Bytes(656 << 20));
    }

    #[test]
    fn an_idle_guest_uses_a_part_of_its_memory_with_all_that_is_its_own() {
        let content = GuestSettings::content_when_idle(Bytes(1 << 30)).unwrap();
        assert_eq!(content.0 >> 20, 225);
        let refused = GuestSettings::content_when_idle(Bytes(128 << 20)).unwrap_err();
        assert!(refused.to_string().contains("cannot be idle"), "{refused}");
    }

    #[test]
    fn contents_larger_than_the_guest_are_refused() {
        let guest = guest(Bytes(256 << 20), Bytes(250 << 20));
        let refused = guest.probe().unwrap_err().to_string();
        assert!(
            refused.contains("250 MiB of content do not fit"),
            "{refused}"
        );
    }
}
