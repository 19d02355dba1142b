//! What happened in a migration, in order and bounded.
//!
//! Most kinds happen once. Those that repeat (lanes that flap, rounds of a guest that never ends
//! writing) are merged from their oldest on when there are too many, and counted, so that the
//! beginning, the end and the latest of each kind always stay.

use drover_api::{EventKind, EventView};
use drover_types::PathId;
use jiff::Timestamp;

use crate::limits::{EVENTS, NOTES};

/// The events of one migration.
#[derive(Debug, Clone, Default)]
pub struct Events(Vec<EventView>);

impl Events {
    /// Those that an earlier agent has written down.
    pub fn of(mut events: Vec<EventView>) -> Self {
        events.truncate(EVENTS);
        Self(events)
    }

    /// All, oldest first.
    pub fn list(&self) -> &[EventView] {
        &self.0
    }

    /// Adds one. What can happen only once is added once, however often it is told.
    pub fn add(&mut self, at: Timestamp, kind: EventKind) {
        if happens_once(&kind) && self.0.iter().any(|event| same_kind(&event.kind, &kind)) {
            return;
        }
        let event = EventView::new(at, kind);
        match self.0.last_mut() {
            Some(last) if last.kind == event.kind => merge(last, event),
            _ => {
                let later = |other: &EventView| other.at > event.at;
                let place = self.0.iter().rposition(|other| !later(other));
                self.0.insert(place.map_or(0, |place| place + 1), event);
            }
        }
        if self.0.len() > EVENTS {
            self.shrink();
        }
    }

    /// Whether pages that are to follow the guest have stopped, and do not follow it again.
    pub fn pages_stand_still(&self) -> bool {
        let of_pages = |event: &EventView| match event.kind {
            EventKind::PagesStopped { .. } => Some(true),
            EventKind::PagesFollow => Some(false),
            _ => None,
        };
        self.0.iter().rev().find_map(of_pages).unwrap_or(false)
    }

    /// What an operator should see without asking for the history, each word once, the latest.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for event in self.0.iter().filter(|event| event.kind.is_notable()) {
            if !notes.contains(&event.text) {
                notes.push(event.text.clone());
            }
        }
        notes.drain(..notes.len().saturating_sub(NOTES));
        notes
    }

    /// Merges the two oldest of the family that has the most events.
    fn shrink(&mut self) {
        let mut sizes: Vec<(Family, usize)> = Vec::new();
        for family in self.0.iter().map(|event| Family::of(&event.kind)) {
            match sizes.iter_mut().find(|(known, _)| *known == family) {
                Some((_, size)) => *size += 1,
                None => sizes.push((family, 1)),
            }
        }
        let largest = sizes.into_iter().max_by_key(|(_, size)| *size);
        let Some((largest, _)) = largest else { return };
        let mut of_it = (0..self.0.len()).filter(|at| Family::of(&self.0[*at].kind) == largest);
        if let (Some(first), Some(second)) = (of_it.next(), of_it.next()) {
            let later = self.0.remove(second);
            merge(&mut self.0[first], later);
        } else {
            // No two are alike: the second goes, since the first says how it began.
            self.0.remove(1);
        }
    }
}

/// Events that stand for each other: of one kind, and on one path where they have one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Family(std::mem::Discriminant<EventKind>, Option<PathId>);

impl Family {
    fn of(kind: &EventKind) -> Self {
        let path = match kind {
            EventKind::LaneUp { path, .. }
            | EventKind::LaneNotOpened { path, .. }
            | EventKind::LaneSuspected { path, .. }
            | EventKind::LaneLost { path, .. }
            | EventKind::PathLost { path, .. }
            | EventKind::PathBack { path, .. }
            | EventKind::PathNarrowed { path, .. }
            | EventKind::PathGivenUp { path, .. } => Some(*path),
            _ => None,
        };
        Self(std::mem::discriminant(kind), path)
    }
}

fn same_kind(one: &EventKind, other: &EventKind) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn happens_once(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Asked
            | EventKind::Prepared { .. }
            | EventKind::Agreed { .. }
            | EventKind::LanesProtected { .. }
            | EventKind::Begun
            | EventKind::HandedOff
            | EventKind::Arrived
            | EventKind::Runs
            | EventKind::Ended { .. }
    )
}

fn merge(earlier: &mut EventView, later: EventView) {
    earlier.last_at = Some(later.last_at.unwrap_or(later.at));
    earlier.count = earlier.count.saturating_add(later.count);
    earlier.kind = later.kind;
    earlier.text = later.text;
}

#[cfg(test)]
mod tests {
    use super::*;
    use drover_api::MigrationPhase;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn lost(lane: u32, path: u16) -> EventKind {
        EventKind::LaneLost {
            lane,
            path: PathId(path),
            reason: "reset".into(),
        }
    }

    fn ended() -> EventKind {
        EventKind::Ended {
            result: MigrationPhase::Completed,
            cause: None,
        }
    }

    #[test]
    fn a_long_history_keeps_its_beginning_its_end_and_the_sum_of_the_rest() {
        let mut events = Events::default();
        events.add(at(0), EventKind::Asked);
        for second in 1..10_000 {
            let lane = u16::try_from(second).unwrap();
            events.add(at(second), lost(lane.into(), lane % 3));
        }
        events.add(at(10_000), ended());
        let list = events.list();
        assert!(list.len() <= EVENTS, "{}", list.len());
        assert_eq!(list[0].kind, EventKind::Asked);
        assert_eq!(list[list.len() - 1].kind, ended());
        assert_eq!(list.iter().map(|event| event.count).sum::<u64>(), 10_001);
        assert!(list.is_sorted_by_key(|event| event.at));
        // The latest are told one by one.
        assert_eq!(list[list.len() - 2].kind, lost(9999, 0));
        assert_eq!(list[list.len() - 2].count, 1);
        // The oldest stand for many, from the first to the last of them.
        let oldest = &list[1];
        assert!(oldest.count > 100 && oldest.last_at.unwrap() > oldest.at);
        assert_eq!(oldest.at, at(1));
    }

    #[test]
    fn what_is_told_again_is_counted_or_left_out() {
        let mut events = Events::default();
        for second in 0..3 {
            events.add(at(second), EventKind::MonitorLost);
        }
        events.add(at(3), EventKind::HandedOff);
        events.add(at(4), EventKind::HandedOff);
        let counts: Vec<_> = events.list().iter().map(|event| event.count).collect();
        assert_eq!(counts, [3, 1]);
        assert_eq!(events.list()[0].last_at, Some(at(2)));
    }

    #[test]
    fn events_that_are_told_late_stand_where_they_happened() {
        let mut events = Events::default();
        events.add(at(0), EventKind::Asked);
        events.add(at(9), ended());
        events.add(at(5), EventKind::Switchover);
        let kinds: Vec<_> = events.list().iter().map(|event| &event.kind).collect();
        assert_eq!(kinds, [&EventKind::Asked, &EventKind::Switchover, &ended()]);
    }

    #[test]
    fn pages_stand_still_from_when_they_stopped_until_they_follow_again() {
        let mut events = Events::default();
        assert!(!events.pages_stand_still());
        let stopped = EventKind::PagesStopped {
            reason: "its relay has ended".to_owned(),
        };
        let all = [stopped.clone(), EventKind::PagesFollow, stopped];
        for ((second, kind), stands_still) in (0..).zip(all).zip([true, false, true]) {
            events.add(at(second), kind);
            events.add(at(second), lost(7, 1));
            assert_eq!(events.pages_stand_still(), stands_still, "{second}");
        }
    }

    #[test]
    fn notes_are_the_notable_events_each_once() {
        let mut events = Events::default();
        events.add(at(0), EventKind::Asked);
        for second in 1..4 {
            events.add(at(second), lost(7, 1));
            events.add(at(second), EventKind::MonitorLost);
        }
        let notes = events.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert_eq!(notes[0], "lane 7 on path 1 was lost: reset");
    }
}
