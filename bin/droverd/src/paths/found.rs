//! What asking a path has found, as the rules know it.

use drover_reach::limits::VOLLEY;
use drover_reach::{Beyond, Largest, Report, Unfinished};
use drover_tune::facts::{Answers, Crossing, Fact, Path, PathEnd};

/// What speaks against taking what was heard for what is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Doubts<'a> {
    /// Why answers cannot be counted on: silence means nothing then.
    pub silence: Option<&'a str>,
    /// Why what is lost may not be the path's fault.
    pub loss: Option<&'a str>,
}

/// A path between these ends.
pub fn path(
    (near, far): (PathEnd, PathEnd),
    route: Fact<String>,
    report: &Report,
    doubts: Doubts<'_>,
) -> Path {
    let uncertain = doubts.silence;
    let arrivals = report.arrivals.keys().cloned().collect();
    Path {
        near,
        far,
        route,
        refused: refused(report),
        answers: certain(uncertain, answers(report, doubts.loss)),
        arrivals: Fact::Known(arrivals),
        there: certain(uncertain, crossing(report, report.there)),
        back: certain(uncertain, crossing(report, report.back)),
        round_trip: match report.trips.round_trip {
            Some(trip) => Fact::Known(trip.median),
            None => Fact::unknown("nothing was answered"),
        },
        counted: Fact::unknown("it was not counted"),
        carried: None,
        together: None,
    }
}

fn certain<T>(uncertain: Option<&str>, fact: Fact<T>) -> Fact<T> {
    uncertain.map_or(fact, Fact::unknown)
}

/// What the kernel said where no question at all could be sent.
fn refused(report: &Report) -> Option<String> {
    match &report.unfinished {
        Some(Unfinished::NotSent { why }) if report.trips.sent == 0 => Some(why.clone()),
        _ => None,
    }
}

/// All that were to be asked, or it is not known how many would have been answered.
fn answers(report: &Report, doubt: Option<&str>) -> Fact<Answers> {
    let trips = report.trips;
    let silent = report.unfinished == Some(Unfinished::Silent);
    let fell_silent = report.unfinished == Some(Unfinished::FellSilent);
    if (trips.sent as usize == VOLLEY && !fell_silent) || silent {
        let lost = trips.answered > 0 && trips.answered < trips.sent;
        let known = Fact::Known(Answers {
            asked: trips.sent,
            answered: trips.answered,
        });
        return certain(doubt.filter(|_| lost), known);
    }
    Fact::unknown(why(report))
}

fn crossing(report: &Report, largest: Option<Largest>) -> Fact<Crossing> {
    match largest {
        Some(Largest { size, beyond }) => Fact::Known(Crossing {
            size,
            vanish: beyond == Beyond::Lost,
        }),
        None => Fact::unknown(why(report)),
    }
}

fn why(report: &Report) -> String {
    let why = report.unfinished.as_ref().map(ToString::to_string);
    why.unwrap_or_else(|| "it was not asked".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use drover_reach::{RoundTrip, Trips};

    use super::*;

    fn end(host: &str) -> PathEnd {
        PathEnd {
            host: host.into(),
            nic: "nic0".into(),
            address: "10.0.0.1".parse().unwrap(),
            mtu: 9000,
        }
    }

    fn found(report: &Report, uncertain: Option<&str>) -> Path {
        let route = Fact::Known("nic0".into());
        let doubts = Doubts {
            silence: uncertain,
            loss: None,
        };
        path((end("a"), end("b")), route, report, doubts)
    }

    fn whole() -> Report {
        let round_trip = RoundTrip {
            least: 1,
            median: 2,
            most: 3,
        };
        let crosses = Largest {
            size: 1400,
            beyond: Beyond::Lost,
        };
        Report {
            trips: Trips {
                sent: 100,
                answered: 97,
                round_trip: Some(round_trip),
            },
            arrivals: BTreeMap::from([("nic0".to_owned(), 97)]),
            there: Some(crosses),
            back: Some(Largest {
                beyond: Beyond::Refused,
                ..crosses
            }),
            asked: 0,
            answered: 0,
            unfinished: None,
        }
    }

    fn nothing(unfinished: Unfinished, sent: u32) -> Report {
        Report {
            trips: Trips {
                sent,
                ..Trips::default()
            },
            arrivals: BTreeMap::new(),
            there: None,
            back: None,
            asked: 0,
            answered: 0,
            unfinished: Some(unfinished),
        }
    }

    #[test]
    fn what_was_found_is_known_and_only_what_vanishes_is_a_hole() {
        let path = found(&whole(), None);
        let answers = path.answers.known().map(|it| (it.asked, it.answered));
        assert_eq!(answers, Some((100, 97)));
        let hole = |fact: Fact<Crossing>| fact.known().map(|it| (it.size, it.vanish));
        assert_eq!(hole(path.there), Some((1400, true)));
        assert_eq!(hole(path.back), Some((1400, false)));
        assert_eq!(path.round_trip, Fact::Known(2));
    }

    #[test]
    fn where_answers_cannot_be_counted_on_neither_loss_nor_sizes_are_known() {
        let path = found(&whole(), Some("it died"));
        assert_eq!(path.answers, Fact::unknown("it died"));
        assert_eq!(path.there, Fact::unknown("it died"));
        assert_eq!(path.back, Fact::unknown("it died"));
        // These arrived all the same.
        assert!(path.arrivals.known().is_some() && path.round_trip.known().is_some());
    }

    #[test]
    fn while_guests_move_loss_is_not_known_and_all_else_is() {
        let doubts = Doubts {
            silence: None,
            loss: Some("one moves"),
        };
        let found = |report: &Report| {
            path(
                (end("a"), end("b")),
                Fact::Known("nic0".into()),
                report,
                doubts,
            )
        };
        let lossy = found(&whole());
        assert_eq!(lossy.answers, Fact::unknown("one moves"));
        assert!(lossy.there.known().is_some());
        let mut clean = whole();
        clean.trips.answered = clean.trips.sent;
        assert!(found(&clean).answers.known().is_some());
        let silent = found(&nothing(Unfinished::Silent, 5));
        assert!(silent.answers.known().is_some());
    }

    #[test]
    fn silence_is_known_and_asking_that_was_cut_short_is_not() {
        let silent = found(&nothing(Unfinished::Silent, 5), None);
        let answers = silent.answers.known().map(|it| (it.asked, it.answered));
        assert_eq!(answers, Some((5, 0)));
        let stopped = found(&nothing(Unfinished::FellSilent, 100), None);
        let why = stopped.answers.get().unwrap_err();
        assert!(why.contains("at first"), "{stopped:?}");
        let late = found(&nothing(Unfinished::Time, 50), None);
        assert!(late.answers.get().unwrap_err().contains("time"), "{late:?}");
        assert_eq!(late.refused, None);
    }

    #[test]
    fn what_the_kernel_said_is_told_where_no_question_left() {
        let why = "Network is unreachable".to_owned();
        let unsent = Unfinished::NotSent { why: why.clone() };
        assert_eq!(found(&nothing(unsent.clone(), 0), None).refused, Some(why));
        assert_eq!(found(&nothing(unsent, 1), None).refused, None);
    }
}
