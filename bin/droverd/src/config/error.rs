//! What is wrong with a configuration: which file, which line, which key, and what to do.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use drover_types::in_short;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {why}; {next}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
        /// What to do.
        next: String,
    },
    /// The file is no TOML, or a key is unknown or has a bad value.
    #[error("{}, {place}: {problem}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Line and key.
        place: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A key's value cannot be used, for a reason outside of its own line.
    #[error("{}, key `{key}`: {problem}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The key, with its section.
        key: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl ConfigError {
    pub(super) fn read(path: &Path, error: &io::Error) -> Self {
        let next = match error.kind() {
            io::ErrorKind::NotFound => {
                "copy the commented example droverd.toml there, or name another file with --config"
            }
            io::ErrorKind::PermissionDenied => "run the agent as root, or make the file readable",
            io::ErrorKind::InvalidData => "it must be text in UTF-8",
            _ => "name a regular file with --config",
        };
        Self::Read {
            path: path.to_owned(),
            why: error.to_string(),
            next: next.to_owned(),
        }
    }

    /// It is not read in part: what is in the rest would be left out in silence.
    pub(super) fn too_long(path: &Path, length: u64, most: u64) -> Self {
        Self::Read {
            path: path.to_owned(),
            why: match length.checked_sub(most) {
                Some(1..) => format!("it has {length} bytes, {most} are allowed"),
                // A pipe or a device tells no length.
                _ => format!("it has more than the {most} bytes that are allowed"),
            },
            next: "name the right file with --config, or shorten this one".to_owned(),
        }
    }

    pub(super) fn key(path: &Path, key: &'static str, problem: String) -> Self {
        Self::Key {
            path: path.to_owned(),
            key,
            problem,
        }
    }

    pub(super) fn parse(path: &Path, text: &str, source: &toml::de::Error) -> Self {
        let place = source.span().map_or_else(
            || "somewhere".to_owned(),
            |span| {
                let (line, key) = locate(text, span.start);
                let mut place = format!("line {line}");
                if let Some(key) = key {
                    // Writing to a String cannot fail.
                    let _ = write!(place, ", key `{key}`");
                }
                place
            },
        );
        let problem = in_short(source.message().trim().replace('\n', " "));
        Self::Parse {
            path: path.to_owned(),
            place,
            problem,
        }
    }
}

/// The line of an offset, from 1, and the key on that line with its section.
pub fn locate(text: &str, offset: usize) -> (usize, Option<String>) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let mut section = None;
    let mut key = None;
    for text in text.lines().take(line) {
        let text = text.trim();
        if let Some(header) = text.strip_prefix('[') {
            let name = header
                .trim_start_matches('[')
                .split(']')
                .next()
                .unwrap_or_default();
            section = Some(name.trim().to_owned());
            key = None;
        } else if let Some((name, _)) = text.split_once('=')
            && is_key(name.trim())
        {
            // Kept for the lines of a list that goes on below it.
            key = Some(name.trim().to_owned());
        }
    }
    let place = match (section, key) {
        (Some(section), Some(key)) => Some(format!("{section}.{key}")),
        (section, key) => key.or(section),
    };
    (line, place.map(in_short))
}

fn is_key(name: &str) -> bool {
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}
