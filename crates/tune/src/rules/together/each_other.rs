//! What each path carries while every host loads another.

use super::{Flow, Flows, Own, Part, mbit, shared, sum, unless};
use crate::facts::{HeldUpBy, Path};
use crate::finding::{Answer, Severity, Subject, Verdict};
use crate::rules::paths::{at_least, falls_short, found, percent_of, processors, sent_again};

/// How many other paths are named.
const NAMED: usize = 3;

/// What is said of each interface that sends.
pub fn each_other(paths: &[Path]) -> Vec<(Subject, Verdict)> {
    let flows = Flows::of(paths, |together| &together.each_other);
    let from = flows.by(|path| (path.near.host.as_str(), path.near.nic.as_str()));
    let from = from.into_iter().map(|((host, nic), own)| {
        let subject = Subject {
            nic: Some(nic.to_owned()),
            ..Subject::host(host)
        };
        (subject, from_one(&own, &flows.known))
    });
    from.collect()
}

/// By the worst of its paths, and what fell short at the same time.
fn from_one(own: &Own<'_>, all: &[Flow<'_>]) -> Verdict {
    let short = own.flows.iter().filter_map(|flow| {
        let short = falls_short(flow.joint.carried.rate, flow.could())?;
        Some((short, *flow))
    });
    let worst = short.min_by_key(|((percent, _), _)| *percent);
    let answer = worst.map_or(Answer::Right, |(short, flow)| too_little(flow, short, all));
    // A line that another path has loaded was looked at, unless the interface has paths of that kind alone.
    let any_was_loaded = !own.flows.is_empty();
    let unknown = own.because(|part| part != Part::Beside || !any_was_loaded);
    unless(unknown, answer)
}

fn too_little(worst: &Flow<'_>, (percent, severity): (u64, Severity), all: &[Flow<'_>]) -> Answer {
    let (near, far) = (&worst.path.near, &worst.path.far);
    let carried = &worst.joint.carried;
    let round = all
        .iter()
        .filter(|flow| flow.joint.round == worst.joint.round);
    let round: Vec<&Flow<'_>> = round.collect();
    let others = round
        .iter()
        .filter(|flow| flow.path != worst.path && flow.is_short());
    let others: Vec<String> = others.map(|flow| ends(flow.path)).collect();
    let again = sent_again(carried.again, carried.packets);
    let (waited, by_hand) = match carried.held_up_by {
        HeldUpBy::Near => processors(&near.host, "had no more to send", &again),
        HeldUpBy::Far => processors(&far.host, "took no more", &again),
        HeldUpBy::Path => (again, shared("")),
    };
    let of_round = |rate: fn(&Flow<'_>) -> u64| mbit(sum(round.iter().map(|flow| rate(flow))));
    let limit = if worst.could() < worst.alone.rate {
        "it was allowed to"
    } else {
        "it carries alone"
    };
    found(
        severity,
        format!(
            "{} carries {} Mbit/s to {} of {} while every host loads another, and {} alone{waited}{}",
            near.nic,
            mbit(carried.rate),
            far.nic,
            far.host,
            mbit(worst.alone.rate),
            named(&others)
        ),
        at_least(worst.could(), limit),
        "guests that move between several hosts at once, as in a drain, take so much longer",
        Some(format!(
            "{} of what it could carry; all {} paths of that time carried {} of {} Mbit/s",
            percent_of(percent),
            round.len(),
            of_round(|flow| flow.joint.carried.rate),
            of_round(|flow| flow.could())
        )),
        by_hand,
    )
}

/// What fell short at the same time.
fn named(others: &[String]) -> String {
    let first = others.iter().take(NAMED).map(String::as_str);
    let first: Vec<&str> = first.collect();
    match others.len() {
        0 => String::new(),
        count if count > NAMED => format!(
            "; at the same time {} and {} others fell short",
            first.join(", "),
            count - NAMED
        ),
        _ => format!("; at the same time {} fell short", first.join(", ")),
    }
}

fn ends(path: &Path) -> String {
    let (near, far) = (&path.near, &path.far);
    format!("{} {} to {} {}", near.host, near.nic, far.host, far.nic)
}
