//! What a rule says of a host, or of hosts together.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::facts::Path;

/// How much it matters to a migration, the most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Migrations fail, or take a multiple of their time.
    Critical,
    /// They take longer than they have to.
    Warning,
    /// It may matter.
    Notice,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Notice => "notice",
        })
    }
}

/// What a finding is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subject {
    /// The host; the first one, by name, of several.
    pub host: String,
    /// The other host, of a finding about two.
    pub other: Option<String>,
    /// The guest, of a finding about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// The interface, of a finding about one; of a guest what its card is connected to.
    pub nic: Option<String>,
}

impl Subject {
    /// That host and nothing of it in particular.
    #[must_use]
    pub fn host(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            other: None,
            guest: None,
            nic: None,
        }
    }

    /// That path, by the end that asked.
    pub(crate) fn path(path: &Path) -> Self {
        Self {
            other: Some(path.far.host.clone()),
            nic: Some(path.near.nic.clone()),
            ..Self::host(&path.near.host)
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host)?;
        if let Some(other) = &self.other {
            write!(f, " and {other}")?;
        }
        if let Some(guest) = &self.guest {
            write!(f, " guest {guest}")?;
        }
        match &self.nic {
            Some(nic) => write!(f, " {nic}"),
            None => Ok(()),
        }
    }
}

/// Something that costs migrations, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: String,
    /// What it is about.
    pub subject: Subject,
    /// What was found.
    #[serde(flatten)]
    pub found: Found,
}

/// What a rule has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// How much it matters.
    pub severity: Severity,
    /// What was read.
    pub read: String,
    /// What ought to be there.
    pub expected: String,
    /// Why that matters to a migration.
    pub why: String,
    /// What it costs one, where that can be computed.
    pub cost: Option<String>,
    /// What makes it go, where a host can do that by itself.
    pub change: Option<Change>,
    /// What people can do, where it cannot.
    pub by_hand: Option<String>,
    /// What is to be changed in a guest's definition. It counts as of the guest's next start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// A line of a guest's definition: something is put in the place of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What is there; none of a line that is new.
    pub from: Option<String>,
    /// What is to be there; none of a line that goes.
    pub to: Option<String>,
}

/// As a diff shows it.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown =
            |sign: &str, text: &Option<String>| text.as_ref().map(|text| format!("{sign} {text}"));
        let both = [shown("-", &self.from), shown("+", &self.to)];
        let both: Vec<String> = both.into_iter().flatten().collect();
        f.write_str(&both.join("\n"))
    }
}

/// What a rule says of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has nothing to say of such a subject.
    NotAbout,
    /// All is as it should be.
    Right,
    /// Something is not.
    Found(Found),
}

/// Why a rule could not look, to be read after "because".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because(pub String);

impl From<&str> for Because {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

/// A rule's answer, or why it has none.
pub type Verdict = Result<Answer, Because>;
