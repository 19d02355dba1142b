//! What has changed since the agent was asked for all paths before.

use std::fmt::Write as _;

use drover_api::{KeptReport, KeptUnusable, KeptView};
use drover_tune::facts::Host;
use drover_tune::{Difference, Differences, Known, differences};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, Zoned};
use serde::Serialize;

use super::paths::Asked;
use super::show::clean;
use crate::cli::Agent;
use crate::command::client;
use crate::failure::Failure;
use crate::show::{row, table};

/// What has changed.
#[derive(Debug, Serialize)]
pub struct Since {
    /// When all were asked before; missing where nothing is kept.
    asked: Option<Timestamp>,
    #[serde(flatten)]
    differences: Differences,
    /// What the agent keeps and cannot use.
    unusable: Vec<KeptUnusable>,
}

/// So long ago, a date in this place's time, or a time.
pub fn when(text: &str) -> Result<Timestamp, String> {
    when_from(text, &Zoned::now())
}

fn when_from(text: &str, now: &Zoned) -> Result<Timestamp, String> {
    let at = if let Ok(span) = text.parse::<Span>() {
        now.checked_sub(span).ok().map(|at| at.timestamp())
    } else if let Ok(time) = text.parse::<Timestamp>() {
        Some(time)
    } else {
        let date = text.parse::<Date>().ok();
        let zone: TimeZone = now.time_zone().clone();
        let at = date.and_then(|date| date.to_zoned(zone).ok());
        at.map(|at| at.timestamp())
    };
    let at =
        at.ok_or("write 12h, 7d, 1w, a date like 2026-11-18, or a time like 2026-11-18T10:00:00Z")?;
    if at > now.timestamp() {
        return Err("that is still to come".into());
    }
    Ok(at)
}

/// What the agent keeps of then.
pub async fn before(agent: &Agent, at: Timestamp) -> Result<KeptView, Failure> {
    let kept = client(agent)?.kept(at).await;
    kept.map_err(Failure::of_reading)
}

impl Since {
    /// Of these hosts, and of paths where they were asked.
    pub fn new(before: KeptView, hosts: &[Host], asked: Option<&Asked>) -> Self {
        let now = Known {
            hosts,
            paths: asked.map_or(&[], |asked| &asked.paths),
        };
        let mut differences = before
            .kept
            .as_ref()
            .map_or_else(Differences::default, |kept| differences(known(kept), now));
        if let Some(asked) = asked {
            explain(&mut differences.paths, asked);
        }
        Self {
            asked: before.kept.map(|kept| kept.asked),
            differences,
            unusable: before.unusable,
        }
    }

    /// For a person.
    pub fn told(&self) -> String {
        let mut said = String::new();
        for KeptUnusable { file, why } in &self.unusable {
            let _ = writeln!(said, "not usable: {}: {}", clean(file), clean(why));
        }
        let Some(asked) = self.asked else {
            said.push_str(
                "the agent keeps nothing of before: it does whenever it is asked for all paths\n\n",
            );
            return said;
        };
        // To the second, as they are kept.
        let asked = asked.strftime("%Y-%m-%d %H:%M:%S UTC");
        let Differences {
            findings,
            paths,
            hosts,
            not_compared,
        } = &self.differences;
        if findings.is_empty() && paths.is_empty() && hosts.is_empty() {
            let _ = writeln!(said, "nothing has changed since {asked}");
        } else {
            let _ = writeln!(said, "changed since {asked}:");
            let mut rows = vec![row(&["", "WHERE", "WHAT", "BEFORE", "NOW"])];
            let all = findings.iter().chain(paths).chain(hosts);
            rows.extend(all.map(in_row));
            said.push_str(&table(&rows));
        }
        if *not_compared > 0 {
            let _ = writeln!(
                said,
                "findings about what was not looked at both times: {not_compared}"
            );
        }
        said.push('\n');
        said
    }
}

fn known(kept: &KeptReport) -> Known<'_> {
    Known {
        hosts: &kept.facts,
        paths: &kept.paths,
    }
}

fn in_row(one: &Difference) -> Vec<String> {
    vec![
        one.trend.to_string(),
        clean(&one.subject).to_string(),
        clean(&one.what).to_string(),
        clean(&one.before).to_string(),
        clean(&one.now).to_string(),
    ]
}

/// Says why a path that there was is not asked now, where that is known.
fn explain(paths: &mut [Difference], asked: &Asked) {
    for path in paths.iter_mut().filter(|path| path.what == "path") {
        let mut left_out = asked.left_out.iter();
        let left = left_out.find(|left| {
            left.near.as_str() == path.subject.host
                && left.nic == path.subject.nic
                && left
                    .far
                    .as_ref()
                    .is_none_or(|far| path.subject.other.as_deref() == Some(far.as_str()))
        });
        if let Some(left) = left.filter(|_| path.before == "asked") {
            path.now = format!("not asked: {}", left.why);
        }
    }
}

#[cfg(test)]
mod tests {
    use drover_api::PathLeftOut;
    use drover_tune::{Subject, Trend};

    use super::*;

    fn now() -> Zoned {
        "2026-11-25T12:00:00+01:00[+01:00]".parse().unwrap()
    }

    #[test]
    fn times_are_so_long_ago_or_a_date_here_or_a_time() {
        for (text, at) in [
            ("12h", "2026-11-24T23:00:00Z"),
            ("7d", "2026-11-18T11:00:00Z"),
            ("1w", "2026-11-18T11:00:00Z"),
            ("1mo", "2026-10-25T11:00:00Z"),
            ("2026-11-18", "2026-11-17T23:00:00Z"),
            ("2026-11-18T10:00:00Z", "2026-11-18T10:00:00Z"),
        ] {
            let expected: Timestamp = at.parse().unwrap();
            assert_eq!(when_from(text, &now()), Ok(expected), "{text}");
        }
        for text in [
            "",
            "h",
            "week",
            "é",
            "999999999999999w",
            "2026-13-01",
            "2026-11-26",
            "-1d",
        ] {
            assert!(when_from(text, &now()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_not_asked_now_is_told_with_the_reason() {
        let mut gone = Difference {
            trend: Trend::Other,
            subject: Subject {
                other: Some("b".into()),
                nic: Some("n1".into()),
                ..Subject::host("a")
            },
            what: "path".into(),
            before: "asked".into(),
            now: "there is none".into(),
        };
        let asked = Asked {
            left_out: vec![PathLeftOut {
                near: "a".parse().unwrap(),
                far: None,
                nic: Some("n1".into()),
                why: "it is down".into(),
            }],
            ..Asked::default()
        };
        explain(std::slice::from_mut(&mut gone), &asked);
        assert_eq!(gone.now, "not asked: it is down");
    }
}
