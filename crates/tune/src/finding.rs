//! What a rule says of a host, or of hosts together.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Disruption};
use crate::facts::Path;
use crate::sources::Source;

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
    /// The guest of Drover's, of a finding about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// The domain of libvirt's, of a finding about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The interface, of a finding about one; of a guest what its card is connected to.
    pub nic: Option<String>,
    /// The other host's interface, of a finding about one of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<String>,
}

impl Subject {
    /// That host and nothing of it in particular.
    #[must_use]
    pub fn host(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            other: None,
            guest: None,
            domain: None,
            nic: None,
            far: None,
        }
    }

    /// That path, from its near end.
    #[must_use]
    pub fn path(path: &Path) -> Self {
        Self {
            other: Some(path.far.host.clone()),
            nic: Some(path.near.nic.clone()),
            far: Some(path.far.nic.clone()),
            ..Self::host(&path.near.host)
        }
    }
}

/// Two interfaces of one name are named once: `a and b ens1f0`, `a ens1f0 and b ens1f1`.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (near, last) = match (&self.nic, &self.far) {
            (Some(nic), Some(far)) if nic != far => (Some(nic), Some(far)),
            (nic, _) => (None, nic.as_ref()),
        };
        let named = |f: &mut fmt::Formatter<'_>, nic: Option<&String>| match nic {
            Some(nic) => write!(f, " {nic}"),
            None => Ok(()),
        };
        f.write_str(&self.host)?;
        named(f, near)?;
        if let Some(other) = &self.other {
            write!(f, " and {other}")?;
        }
        if let Some(guest) = &self.guest {
            write!(f, " guest {guest}")?;
        }
        if let Some(domain) = &self.domain {
            write!(f, " libvirt domain {domain}")?;
        }
        named(f, last)
    }
}

/// Something that costs migrations, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule.
    pub rule: String,
    /// What it is about.
    pub subject: Subject,
    /// What making it go does to those who use the host meanwhile.
    #[serde(default = "by_hand")]
    pub disruption: Disruption,
    /// Where it is said that it should be otherwise.
    #[serde(default)]
    pub documentation: Vec<Source>,
    /// What was found.
    #[serde(flatten)]
    pub found: Found,
}

/// Of a finding that says nothing of it.
const fn by_hand() -> Disruption {
    Disruption::ByHand
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

impl Found {
    /// What making it go does to others: a definition lasts, and what is only said is for people to do.
    #[must_use]
    pub fn disruption(&self) -> Disruption {
        match &self.change {
            Some(change) => change.disruption,
            None if self.lines.is_empty() => Disruption::ByHand,
            None => Disruption::Persistent,
        }
    }
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
