//! A guest's processor, and whether other hosts have it.

use std::collections::BTreeSet;

use super::{Placed, changed, in_definition, listed, models};
use crate::arguments::{Value, is_emulated, last, turns_on};
use crate::facts::{Argument, Guest, Host, Offer, Offers};
use crate::finding::{Answer, Because, Found, Severity, Verdict};

/// Models that have all that the hardware, or QEMU, has.
const ALL: [&str; 2] = ["host", "max"];

/// What only these take.
const OF_ALL: &str = "migratable";

/// What a guest asks for.
struct Asked<'g> {
    argument: &'g Argument,
    value: Value,
    emulated: bool,
}

/// Other hosts have the processor that a guest was given.
pub fn model(placed: Placed<'_>) -> Verdict {
    let guest = placed.guest;
    let Some(argument) = last(&guest.arguments, "-cpu") else {
        return Ok(Answer::NotAbout);
    };
    let here = placed.host.offers.get()?;
    let value = Value::of(argument.value.as_deref().unwrap_or_default());
    let emulated = emulated(guest, here)?;
    let asked = Asked {
        argument,
        value,
        emulated,
    };
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

/// As its QEMU says, while it runs.
fn emulated(guest: &Guest, here: &Offers) -> Result<bool, Because> {
    match guest.seen.known() {
        Some(seen) => Ok(!*seen.accelerated.get()?),
        None => Ok(is_emulated(
            guest.machine.as_deref(),
            &guest.arguments,
            here.hardware.is_some(),
        )),
    }
}

impl Asked<'_> {
    fn of<'o>(&self, offers: &'o Offers) -> Option<&'o Offer> {
        let offer = if self.emulated {
            &offers.emulated
        } else {
            &offers.hardware
        };
        offer.as_ref()
    }

    fn is_all(&self) -> bool {
        ALL.contains(&self.value.kind())
    }

    /// Why the guest cannot be there.
    fn missing(&self, own: &Offer, here: &Offers, other: &Host) -> Result<Option<String>, Because> {
        let there = other.offers.get()?;
        let name = &other.name;
        let Some(offer) = self.of(there) else {
            let how = if self.emulated { "emulates" } else { "runs" };
            return Ok(Some(format!("no QEMU of {name} {how} processors")));
        };
        let mut lacks = self.lacks(own, offer);
        if self.is_all() {
            if lacks.is_empty() && !self.emulated && here.processor != there.processor {
                return Ok(Some(format!(
                    "{name} has another processor, {}",
                    there.processor
                )));
            }
        } else if !offer.models.contains(self.value.kind()) {
            let Some(of_model) = offer.lacking.get(self.value.kind()) else {
                return Ok(Some(format!("no QEMU of {name} knows the model")));
            };
            // What this host lacks of it as well the guest runs without.
            let without = own.lacking.get(self.value.kind());
            let is_here = |name: &&String| !without.is_some_and(|without| without.contains(*name));
            lacks.extend(of_model.iter().filter(is_here).map(String::as_str));
        }
        if lacks.is_empty() {
            return Ok(None);
        }
        Ok(Some(format!("{name} lacks {}", listed(lacks))))
    }

    /// Features that it has here and would not have there.
    fn lacks<'o>(&'o self, own: &'o Offer, there: &Offer) -> BTreeSet<&'o str> {
        let (all, off): (Vec<&str>, Vec<&str>) = if self.is_all() {
            let off = self.value.rest().filter_map(is_off).collect();
            (own.features.iter().map(String::as_str).collect(), off)
        } else {
            // Other words, such as enlightenments for Windows, are no features that a processor could lack.
            let on = self.value.rest().filter_map(turns_on);
            (
                on.filter(|name| own.features.contains(*name)).collect(),
                Vec::new(),
            )
        };
        let is_lacking = |name: &&str| !there.features.contains(*name) && !off.contains(name);
        all.into_iter().filter(is_lacking).collect()
    }

    fn found(&self, placed: Placed<'_>, severity: Severity, keep: &[String]) -> Found {
        let hosts = [placed.host]
            .into_iter()
            .chain(placed.others.iter().copied());
        let offers = hosts.map(|host| self.of(host.offers.known()?));
        let offers: Option<Vec<&Offer>> = offers.collect();
        let common = offers.as_deref().and_then(models::newest);
        let lines = common.map(|model| {
            let kept = self
                .value
                .rest()
                .filter(|part| may_stay(part, offers.as_deref().unwrap_or_default()));
            let parts: Vec<&str> = [model].into_iter().chain(kept).collect();
            changed(self.argument, &Value::of(&parts.join(",")))
        });
        Found {
            severity,
            read: format!("{}: {}", self.value.kind(), keep.join("; ")),
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
                Some(_) => in_definition(placed.guest),
                None => "keep it to hosts that have it ([policy] of its definition)".into(),
            }),
            lines: lines.into_iter().collect(),
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
