//! Clusters as a table, and as JSON.

use std::fmt::Write as _;

use drover_trust::Fingerprint;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::book::Known;
use super::file::Place;
use super::look::State;
use crate::command::Outcome;
use crate::failure::Failure;
use crate::show::{age, row, table};

/// Of a fingerprint, what people compare at a glance.
const SHORT: usize = 12;

/// A cluster and how it was found, for a program.
#[derive(Debug, Serialize)]
pub struct View<'a> {
    #[serde(flatten)]
    known: &'a Known,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<Fingerprint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

/// All of them for a program.
pub fn views(found: &[(Known, State)]) -> Vec<View<'_>> {
    let view = |(known, state)| View {
        known,
        state: word(state),
        replaced_by: match state {
            State::Replaced { by } => *by,
            _ => None,
        },
        problem: match state {
            State::Unreachable { problem } | State::Refused { problem } => Some(problem.as_str()),
            State::Reachable | State::Replaced { .. } => None,
        },
    };
    found
        .iter()
        .map(|(known, state)| view((known, state)))
        .collect()
}

fn word(state: &State) -> &'static str {
    match state {
        State::Reachable => "reachable",
        State::Unreachable { .. } => "unreachable",
        State::Replaced { .. } => "replaced",
        State::Refused { .. } => "refused",
    }
}

/// `drover recent`
pub fn list(found: &[(Known, State)], place: &Place) -> Result<Outcome, Failure> {
    let text = if found.is_empty() {
        "none yet: a cluster is noted when a command reaches one of its hosts\n".to_owned()
    } else {
        rows(found, Timestamp::now())
    };
    let encoded: Value =
        serde_json::to_value(views(found)).map_err(|error| Failure::error(error.to_string()))?;
    let parts = [("clusters", encoded), ("file", json!(place.path()))];
    Outcome::of_parts(text, &parts)
}

/// The table, and below it what is wrong.
pub fn rows(found: &[(Known, State)], now: Timestamp) -> String {
    let mut rows = vec![row(&[
        "CLUSTER",
        "HOST",
        "FINGERPRINT",
        "LAST USED",
        "STATE",
        "ADDRESS",
    ])];
    for (known, state) in found {
        let short: String = known.fingerprint.to_string().chars().take(SHORT).collect();
        let since = known.unreachable_since.map(|since| age(since, now));
        let state = match (state, since) {
            (State::Reachable | State::Refused { .. }, _) => word(state).to_owned(),
            (State::Unreachable { .. }, Some(since)) => format!("UNREACHABLE for {since}"),
            (State::Unreachable { .. }, None) => "UNREACHABLE".to_owned(),
            (State::Replaced { .. }, _) => "REPLACED".to_owned(),
        };
        rows.push(vec![
            known.name.to_string(),
            known.host.to_string(),
            short,
            format!("{} ago", age(known.last_used, now)),
            state,
            known.way.shown(),
        ]);
    }
    let mut text = table(&rows);
    for (known, state) in found {
        // Writing to a String cannot fail.
        let _ = match state {
            State::Reachable => Ok(()),
            State::Unreachable { problem } | State::Refused { problem } => {
                writeln!(text, "{}: {problem}", known.name)
            }
            State::Replaced { by: Some(by) } => writeln!(
                text,
                "{}: its fingerprint is {}, and what answers now is of the cluster {by}",
                known.name, known.fingerprint
            ),
            State::Replaced { by: None } => {
                writeln!(text, "{}: what answers now is in no cluster", known.name)
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent::book::{Book, Reached, Way};

    #[test]
    fn clusters_are_shown_with_how_they_were_found() {
        let used: Timestamp = "2026-11-22T08:00:00Z".parse().unwrap();
        let now: Timestamp = "2026-11-22T12:00:00Z".parse().unwrap();
        let mut book = Book::default();
        for (cluster, host) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
            let path = format!("/run/{host}").into();
            let reached = Reached {
                fingerprint: Fingerprint::of(&[cluster]),
                authority: host.parse().unwrap(),
                host: host.parse().unwrap(),
                way: Way::Socket { path },
            };
            book.note(reached, used);
        }
        let problem = || "no agent answers".to_owned();
        let states = [
            State::Refused { problem: problem() },
            State::Replaced {
                by: Some(Fingerprint::of(&[9])),
            },
            State::Unreachable { problem: problem() },
            State::Reachable,
        ];
        book.clusters[2].unreachable_since = Some(used);
        let found: Vec<_> = book.clusters.into_iter().zip(states).collect();
        insta::assert_snapshot!(rows(&found, now));
        let document = serde_json::to_value(views(&found)).unwrap();
        assert_eq!(document[1]["state"], "replaced");
        assert_eq!(
            document[1]["replaced_by"],
            Fingerprint::of(&[9]).to_string()
        );
        assert_eq!(document[2]["problem"], "no agent answers");
        assert_eq!(document[3]["way"]["path"], "/run/a");
    }
}
