//! Paths that were loaded at the same time, and what they share that carries less than they do alone.
//!
//! ```text
//!   incast       b ─┐              each other     a ──▶ c     (a round; in the next one
//!                c ─┼─▶ a                         b ──▶ d      each host loads another)
//!                d ─┘                             c ──▶ a
//!                                                 d ──▶ b
//! ```
//!
//! # Invariant
//! A subject of which something was not measured is found or skipped, and never right. Nothing is found by a sum of which a part is not known.

mod each_other;
mod incast;

use std::collections::{BTreeMap, BTreeSet};

pub use self::each_other::each_other;
pub use self::incast::incast;
use super::paths::falls_short;
use crate::facts::{Carried, Fact, HeldUpBy, Joint, Path, Together};
use crate::finding::{Answer, Because, Verdict};

/// A path that was loaded alone, and together with others.
struct Flow<'a> {
    path: &'a Path,
    alone: &'a Carried,
    joint: &'a Joint,
}

impl Flow<'_> {
    /// What it could carry beside others: what it carries alone, as far as it was allowed to.
    fn could(&self) -> u64 {
        let allowed = self.joint.carried.allowed.unwrap_or(u64::MAX);
        self.alone.rate.min(allowed)
    }

    fn is_short(&self) -> bool {
        falls_short(self.joint.carried.rate, self.could()).is_some()
    }

    fn is_short_alone(&self) -> bool {
        let most = self.alone.most();
        most.is_some_and(|most| falls_short(self.alone.rate, most).is_some())
    }

    fn held_up_by(&self, what: HeldUpBy) -> bool {
        self.joint.carried.held_up_by == what
    }
}

/// A path of which there is nothing to say.
struct Unjudged<'a> {
    path: &'a Path,
    because: Because,
    part: Part,
}

/// What part such a path had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// None, as it was not measured alone.
    None,
    /// None, as its line was loaded by another path of its two hosts.
    Beside,
    /// It may have carried something, and nobody knows how much, or how much it could have.
    Unknown,
}

/// It, or why it is not judged.
fn flow<'a>(
    path: &'a Path,
    together: &Together,
    joint: &'a Fact<Joint>,
) -> Result<Flow<'a>, Unjudged<'a>> {
    let not = |part, why: &str| Unjudged {
        path,
        because: why.into(),
        part,
    };
    let alone = match &path.carried {
        Some(carried) => carried.get(),
        None => Err("it was not loaded alone"),
    };
    let alone = alone.map_err(|why| not(Part::None, why))?;
    let part = if together.beside {
        Part::Beside
    } else {
        Part::Unknown
    };
    let joint = joint.get().map_err(|why| not(part, why))?;
    match spread(path, joint) {
        Some(why) => Err(not(Part::Unknown, &why)),
        None => Ok(Flow { path, alone, joint }),
    }
}

/// What of a path has several lines: connections of one load meet others of them than those of another.
fn spread(path: &Path, joint: &Joint) -> Option<String> {
    let ends = [
        (&path.near, &joint.near_ports),
        (&path.far, &joint.far_ports),
    ];
    let (end, ports) = ends.into_iter().find(|(_, ports)| ports.len() > 1)?;
    let ports: BTreeSet<&str> = ports.iter().map(String::as_str).collect();
    Some(format!(
        "{} of {} stands on {}, and which of them a connection takes is another thing each time",
        end.nic,
        end.host,
        joined(&ports)
    ))
}

/// All paths that were to be loaded so.
struct Flows<'a> {
    known: Vec<Flow<'a>>,
    unjudged: Vec<Unjudged<'a>>,
}

impl<'a> Flows<'a> {
    fn of(paths: &'a [Path], joint: fn(&Together) -> &Fact<Joint>) -> Self {
        let (mut known, mut unjudged) = (Vec::new(), Vec::new());
        for path in paths {
            let Some(together) = &path.together else {
                continue;
            };
            match flow(path, together, joint(together)) {
                Ok(flow) => known.push(flow),
                Err(not) => unjudged.push(not),
            }
        }
        Self { known, unjudged }
    }

    /// Those of each subject.
    fn by<K: Ord>(&self, subject: impl Fn(&'a Path) -> K) -> BTreeMap<K, Own<'_>> {
        let mut by: BTreeMap<K, Own<'_>> = BTreeMap::new();
        for flow in &self.known {
            by.entry(subject(flow.path)).or_default().flows.push(flow);
        }
        for not in &self.unjudged {
            by.entry(subject(not.path)).or_default().unjudged.push(not);
        }
        by
    }
}

/// Those of one subject.
#[derive(Default)]
struct Own<'a> {
    flows: Vec<&'a Flow<'a>>,
    unjudged: Vec<&'a Unjudged<'a>>,
}

impl Own<'_> {
    /// Why one of them is not judged that had such a part.
    fn because(&self, part: impl Fn(Part) -> bool) -> Option<Because> {
        let mut all = self.unjudged.iter();
        let found = all.find(|not| part(not.part))?;
        Some(found.because.clone())
    }
}

/// What was found counts whatever else is not known, and nothing is right before all is.
fn unless(unknown: Option<Because>, answer: Answer) -> Verdict {
    match (answer, unknown) {
        (Answer::Found(found), _) => Ok(Answer::Found(found)),
        (_, Some(because)) => Err(because),
        (answer, None) => Ok(answer),
    }
}

/// What to look at that several paths share, after what is said `first`.
fn shared(first: &str) -> String {
    format!(
        "see {first}what these paths share: an uplink between two switches (its rate, a member of its LAG that is down), the buffers \
         or a shaper of a switch, and `pci-slot` and `link-errors` of these hosts"
    )
}

/// Of numbers that others told.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

fn joined(names: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = names.iter().copied().collect();
    names.join(" and ")
}

fn mbit(rate: u64) -> u64 {
    rate / 1_000_000
}
