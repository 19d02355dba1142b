//! A guest's processor, and whether other hosts have it.

use std::collections::BTreeSet;

use super::asked::{self, Cpu};
use super::{Placed, in_definition, listed, models};
use crate::arguments::turns_on;
use crate::facts::{Host, Offer, Offers};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Models that have all that the hardware, or QEMU, has.
const ALL: [&str; 2] = ["host", "max"];

/// What only these take.
const OF_ALL: &str = "migratable";

/// What a guest asks for.
struct Asked<'g>(Cpu<'g>);

/// Other hosts have the processor that a guest was given.
pub fn model(placed: Placed<'_>) -> Verdict {
    // A guest that names none is asked for nothing of its host.
    let here = placed.host.offers.get();
    let known = here.cloned().unwrap_or_default();
    let Some(cpu) = asked::cpu(placed.guest, &known)? else {
        return Ok(Answer::NotAbout);
    };
    let (here, asked) = (here?, Asked(cpu));
    let own = asked
        .of(here)
        .ok_or("no QEMU of its host answers for such guests")?;
    let others = placed.others()?;
    let mut keep = Vec::new();
    let mut unknown = None;
    let mut can = 0;
    for other in others {
        match asked.missing(own, here, other) {
            Ok(None) => can += 1,
            Ok(Some(why)) => keep.push(why),
            Err(Because(why)) => unknown = Some(format!("of {}: {why}", other.name)),
        }
    }
    if keep.is_empty() {
        return match unknown {
            Some(why) => Err(Because(why)),
            None => Ok(Answer::Right),
        };
    }
    let severity = if can == 0 {
        Severity::Critical
    } else {
        Severity::Warning
    };
    Ok(Answer::Found(asked.found(placed, severity, &keep)))
}

impl Asked<'_> {
    fn of<'o>(&self, offers: &'o Offers) -> Option<&'o Offer> {
        let offer = if self.0.emulated {
            &offers.emulated
        } else {
            &offers.hardware
        };
        offer.as_ref()
    }

    fn is_all(&self) -> bool {
        ALL.contains(&self.0.model.as_str())
    }

    /// Why the guest cannot be there.
    fn missing(&self, own: &Offer, here: &Offers, other: &Host) -> Result<Option<String>, Because> {
        let there = other.offers.get()?;
        let name = &other.name;
        let Some(offer) = self.of(there) else {
            let how = if self.0.emulated { "emulates" } else { "runs" };
            return Ok(Some(format!("no QEMU of {name} {how} processors")));
        };
        let mut lacks = self.lacks(own, offer);
        if self.is_all() {
            if lacks.is_empty() && !self.0.emulated && here.processor != there.processor {
                return Ok(Some(format!(
                    "{name} has another processor, {}",
                    there.processor
                )));
            }
        } else if !offer.models.contains(self.0.model.as_str()) {
            let Some(of_model) = offer.lacking.get(self.0.model.as_str()) else {
                return Ok(Some(format!("no QEMU of {name} knows the model")));
            };
            // What this host lacks of it as well the guest runs without.
            let without = own.lacking.get(self.0.model.as_str());
            let is_here = |name: &&String| !without.is_some_and(|without| without.contains(*name));
            let off: Vec<&str> = self.off().collect();
            let has = of_model.iter().filter(is_here).map(String::as_str);
            lacks.extend(has.filter(|name| !off.contains(name)));
        }
        if lacks.is_empty() {
            return Ok(None);
        }
        Ok(Some(format!("{name} lacks {}", listed(lacks))))
    }

    /// Features that it has here and would not have there.
    fn lacks<'o>(&'o self, own: &'o Offer, there: &Offer) -> BTreeSet<&'o str> {
        let off: Vec<&str> = self.off().collect();
        let all: Vec<&str> = if self.is_all() {
            own.features.iter().map(String::as_str).collect()
        } else {
            // Other words, such as enlightenments for Windows, are no features that a processor could lack.
            let on = self.0.words.iter().filter_map(|word| turns_on(word));
            on.filter(|name| own.features.contains(*name)).collect()
        };
        let is_lacking = |name: &&str| !there.features.contains(*name) && !off.contains(name);
        all.into_iter().filter(is_lacking).collect()
    }

    /// Features that it was not given.
    fn off(&self) -> impl Iterator<Item = &str> {
        self.0.words.iter().filter_map(|word| is_off(word))
    }

    fn found(&self, placed: Placed<'_>, severity: Severity, keep: &[String]) -> Found {
        let hosts = [placed.host]
            .into_iter()
            .chain(placed.others.iter().copied());
        let offers = hosts.map(|host| self.of(host.offers.known()?));
        let offers: Option<Vec<&Offer>> = offers.collect();
        let common = offers.as_deref().and_then(models::newest);
        let lines = common.map(|model| {
            let offers = offers.as_deref().unwrap_or_default();
            let all_have = |model: &str| {
                let mut all = offers.iter();
                !ALL.contains(&model) && all.all(|offer| offer.models.contains(model))
            };
            let may_stay = |part: &str| may_stay(part, offers);
            self.0.with_model(model, may_stay, all_have)
        });
        let lines = lines.unwrap_or_default();
        Found {
            severity,
            read: format!("{}: {}", self.0.model.as_str(), keep.join("; ")),
            expected: match common {
                Some(model) => format!("a model that all hosts have: {model} is the newest for servers"),
                None => "a model that all hosts have; there is none of those for servers".into(),
            },
            why: if severity == Severity::Critical {
                "it can be moved to none of the others: what it began to use would not be there, and its programs end"
            } else {
                "it can be moved to some of the others only: where what it began to use is not there, its programs end"
            }
            .into(),
            cost: None,
            change: None,
            by_hand: Some(match common {
                Some(_) => in_definition(placed.guest, "", &lines),
                None => self.0.kept_to_hosts().into(),
            }),
            lines,
        }
    }
}

/// A part of the value that means something with another model, and that no host lacks.
fn may_stay(part: &str, offers: &[&Offer]) -> bool {
    let name = turns_on(part).or(is_off(part)).unwrap_or(part);
    let has = |offer: &&Offer| offer.features.contains(name);
    let is_lacking = turns_on(part).is_some() && offers.iter().any(has) && !offers.iter().all(has);
    !(is_lacking || name == OF_ALL)
}

/// The feature that a part of `-cpu`'s value turns off.
fn is_off(part: &str) -> Option<&str> {
    match (part.strip_prefix('-'), part.split_once('=')) {
        (Some(feature), _) => Some(feature),
        (None, Some((feature, "off" | "no" | "false"))) => Some(feature),
        _ => None,
    }
}
