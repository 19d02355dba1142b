//! What was found of the cluster when all paths were asked by way of this agent: a file for each time.
//!
//! # Invariant
//! A report is there whole or not at all, and what cannot be written takes nothing that is there.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use drover_api::{KeptReport, KeptUnusable, KeptView};
use drover_types::in_short;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::thin::{Entry, beyond};
use crate::limits::KEPT_BYTES;
use crate::registry::files;

/// Below the state directory.
const DIRECTORY: &str = "doctor";

/// The format of a file. A newer one that an older agent cannot read has another number.
const FORMAT: u32 = 1;

/// Names are times to the second.
const NAME: &str = "%Y%m%dT%H%M%SZ";
const ENDING: &str = ".json";

/// Of a file that was not finished.
const UNFINISHED: &str = ".json.new";

/// A file.
#[derive(Debug, Serialize, Deserialize)]
struct Document<T> {
    format: u32,
    report: T,
}

/// What can be read of a file whatever its format.
#[derive(Debug, Deserialize)]
struct Head {
    format: u32,
}

/// Where they are.
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.directory.display().fmt(f)
    }
}

impl Kept {
    /// Those of an agent.
    pub fn below(state: &Path) -> Self {
        Self {
            directory: state.join(DIRECTORY),
        }
    }

    /// Keeps one, and lets go what is too much by then. One of the same second is replaced.
    ///
    /// # Errors
    /// It is too large, or cannot be written; then all is as before.
    pub fn keep(&self, report: &KeptReport, now: Timestamp) -> io::Result<()> {
        let text = serde_json::to_vec(&Document {
            format: FORMAT,
            report,
        })?;
        if text.len() as u64 > KEPT_BYTES {
            let size = text.len();
            let message = format!("it has {size} bytes, and may have {KEPT_BYTES}");
            return Err(io::Error::other(message));
        }
        let mut made = DirBuilder::new();
        made.recursive(true).mode(0o700).create(&self.directory)?;
        let left = self.names()?;
        for name in left.iter().filter(|name| name.ends_with(UNFINISHED)) {
            // Of an agent that died, or of a disk that was full.
            self.remove(name);
        }
        let file = self.file(report.asked);
        if let Err(error) = files::write_whole(&file, &text) {
            self.remove(&format!("{}.new", name(report.asked)));
            return Err(error);
        }
        for entry in beyond(self.entries()?, now) {
            self.remove(&name(entry.at));
        }
        Ok(())
    }

    /// The newest that is as old as that, or the oldest of those that are not to come. Of those that cannot be used it is told why.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn of(&self, at: Timestamp, now: Timestamp) -> io::Result<KeptView> {
        let mut times: Vec<Timestamp> = self.entries()?.iter().map(|entry| entry.at).collect();
        times.retain(|time| *time <= now);
        times.sort_unstable();
        let as_old = times.partition_point(|time| *time <= at);
        let (older, younger) = times.split_at(as_old);
        let mut view = KeptView::default();
        for time in older.iter().rev().chain(younger) {
            let file = self.file(*time);
            match read(&file) {
                Ok(Some(report)) => {
                    view.kept = Some(report);
                    break;
                }
                // Another has just let it go.
                Ok(None) => {}
                Err(error) => view.unusable.push(KeptUnusable {
                    file: file.display().to_string(),
                    why: error.to_string(),
                }),
            }
        }
        Ok(view)
    }

    fn file(&self, at: Timestamp) -> PathBuf {
        self.directory.join(name(at))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let read = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let mut names = Vec::new();
        for entry in read {
            // Ours are text; others are left alone.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    /// Those with a name of ours; what others put there is left alone.
    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for name in self.names()? {
            let Some(at) = time(&name) else { continue };
            match fs::symlink_metadata(self.directory.join(&name)) {
                Ok(metadata) => entries.push(Entry {
                    at,
                    bytes: metadata.len(),
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(entries)
    }

    fn remove(&self, name: &str) {
        let file = self.directory.join(name);
        if let Err(error) = files::remove(&file) {
            tracing::warn!(file = %file.display(), %error, "not removed");
        }
    }
}

fn name(at: Timestamp) -> String {
    format!("{}{ENDING}", at.strftime(NAME))
}

/// Of a name that we would have given.
fn time(given: &str) -> Option<Timestamp> {
    let stem = given.strip_suffix(ENDING)?;
    let time = DateTime::strptime(NAME, stem).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?.timestamp();
    (name(time) == given).then_some(time)
}

/// `None` where there is no such file.
fn read(file: &Path) -> io::Result<Option<KeptReport>> {
    let Some(text) = files::read_within(file, KEPT_BYTES)? else {
        return Ok(None);
    };
    let broken = |error: serde_json::Error| io::Error::other(in_short(error));
    let Head { format } = serde_json::from_str(&text).map_err(broken)?;
    if format != FORMAT {
        let message = format!("its format is {format}, and this agent knows {FORMAT}");
        return Err(io::Error::other(message));
    }
    let document: Document<KeptReport> = serde_json::from_str(&text).map_err(broken)?;
    Ok(Some(document.report))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KEPT_REPORTS;

    const DAY: i64 = 24 * 3600;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn report(seconds: i64) -> KeptReport {
        KeptReport {
            asked: at(seconds),
            facts: Vec::new(),
            paths: Vec::new(),
            paths_left_out: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn kept(days: &[i64]) -> (tempfile::TempDir, Kept) {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::below(state.path());
        for day in days {
            kept.keep(&report(day * DAY), at(day * DAY)).unwrap();
        }
        (state, kept)
    }

    /// The day of the one that is found, and how many were not usable.
    fn found(kept: &Kept, at_day: i64) -> (Option<i64>, usize) {
        let view = kept.of(at(at_day * DAY), at(1000 * DAY)).unwrap();
        let day = view.kept.map(|report| report.asked.as_second() / DAY);
        (day, view.unusable.len())
    }

    #[test]
    fn the_newest_that_is_as_old_is_found_or_the_oldest() {
        let (_state, kept) = kept(&[10, 20, 30]);
        for (asked, day) in [(30, 30), (29, 20), (20, 20), (10, 10), (5, 10), (99, 30)] {
            assert_eq!(found(&kept, asked), (Some(day), 0), "{asked}");
        }
        // A clock that was wrong is believed by nobody.
        let later = kept.of(at(99 * DAY), at(15 * DAY)).unwrap();
        assert_eq!(later.kept, Some(report(10 * DAY)));
    }

    #[test]
    fn nothing_is_found_where_nothing_was_kept() {
        let (_state, kept) = kept(&[]);
        assert_eq!(found(&kept, 5), (None, 0));
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_format_is_named_and_the_next_one_taken() {
        let (_state, kept) = kept(&[10, 20, 30, 40, 50]);
        let write = |day: i64, text: &str| fs::write(kept.file(at(day * DAY)), text).unwrap();
        let whole = fs::read_to_string(kept.file(at(10 * DAY))).unwrap();
        write(50, &whole[..whole.len() / 2]);
        write(40, "");
        write(30, &whole.replace("\"format\":1", "\"format\":2"));
        fs::remove_file(kept.file(at(20 * DAY))).unwrap();
        fs::create_dir(kept.file(at(20 * DAY))).unwrap();
        assert_eq!(found(&kept, 60), (Some(10), 4));
        let view = kept.of(at(30 * DAY), at(60 * DAY)).unwrap();
        let why = &view.unusable[0].why;
        assert!(why.contains("format is 2"), "{why}");
    }

    #[test]
    fn files_of_others_are_left_alone_and_one_that_was_not_finished_goes() {
        let (_state, kept) = kept(&[10]);
        let put = |name: &str| fs::write(kept.directory.join(name), "x").unwrap();
        put("20260101T000000Z.json.new");
        for other in ["notes.json", "2026.json", "20260101T000000Z.txt"] {
            put(other);
        }
        kept.keep(&report(20 * DAY), at(20 * DAY)).unwrap();
        let mut names = kept.names().unwrap();
        names.sort();
        let all = [
            "19700111T000000Z.json",
            "19700121T000000Z.json",
            "2026.json",
            "20260101T000000Z.txt",
            "notes.json",
        ];
        assert_eq!(names, all);
    }

    #[test]
    fn a_directory_that_is_full_of_them_takes_the_newest_and_lets_the_oldest_go() {
        let days: Vec<i64> = (1..=200).collect();
        let (_state, kept) = kept(&days);
        let entries = kept.entries().unwrap();
        assert!(entries.len() <= KEPT_REPORTS, "{}", entries.len());
        assert_eq!(found(&kept, 200), (Some(200), 0));
        assert_eq!(found(&kept, 1), (Some(110), 0));
    }

    #[test]
    fn one_that_is_too_large_or_cannot_be_written_is_refused_and_takes_nothing() {
        let (_state, kept) = kept(&[10]);
        let mut large = report(20 * DAY);
        large.left_out.push(drover_api::MemberLeftOut {
            host: "b".parse().unwrap(),
            why: "x".repeat(usize::try_from(KEPT_BYTES).unwrap()),
        });
        let refused = kept.keep(&large, at(20 * DAY)).unwrap_err();
        assert!(refused.to_string().contains("may have"), "{refused}");
        // A directory that is in the way of the file that is written beside.
        let beside = kept.directory.join("19700121T000000Z.json.new");
        fs::create_dir(&beside).unwrap();
        kept.keep(&report(20 * DAY), at(20 * DAY)).unwrap_err();
        assert_eq!(found(&kept, 20), (Some(10), 0));
    }
}
