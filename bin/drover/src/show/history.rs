//! Migrations that were, and what happened in one.

use std::fmt::Write as _;

use drover_api::{EventView, MigrationView};
use jiff::Timestamp;

use super::{migrations, row, table};

/// `drover history`
pub fn history(views: &[MigrationView]) -> String {
    if views.is_empty() {
        return "no guest has moved from or to this host yet\n".to_owned();
    }
    migrations::rows(&views.iter().collect::<Vec<_>>())
}

/// What happened in one, each event with its time since the beginning.
pub fn events(view: &MigrationView, events: &[EventView]) -> String {
    let mut text = format!(
        "{} from {} to {}, as seen by this host since {:.3}\n",
        view.vm, view.source, view.destination, view.started_at
    );
    if let Some(done) = view.reduced_in_words() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{done}");
    }
    if events.is_empty() {
        text.push_str("nothing is kept of what happened\n");
        return text;
    }
    let since = |at: Timestamp| {
        let ms = at.duration_since(view.started_at).as_millis();
        // A clock that was set back gives a negative time.
        let sign = if ms < 0 { '-' } else { '+' };
        format!("{sign}{}.{:03} s", ms.abs() / 1000, ms.abs() % 1000)
    };
    let rows: Vec<_> = events
        .iter()
        .map(|event| {
            let mut what = event.text.clone();
            if let Some(last) = event.last_at {
                let _ = write!(what, " ({} times until {})", event.count, since(last));
            }
            row(&[&since(event.at), &what])
        })
        .collect();
    text.push_str(&table(&rows));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_told_with_their_time_since_the_beginning() {
        let view = serde_json::from_value(json!({
            "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "source": "a",
            "destination": "b", "role": "source", "phase": "completed",
            "started_at": "2026-11-21T20:00:00Z",
            "bytes": {"total": 1000, "transferred": 0, "remaining": 0},
            "round": 0, "rate": 0, "paths": [], "left_out": [], "notes": [],
        }))
        .unwrap();
        let list: Vec<EventView> = serde_json::from_value(json!([
            {"at": "2026-11-21T20:00:00Z", "count": 1, "kind": "asked", "text": "asked for"},
            {"at": "2026-11-21T20:00:01.5Z", "last_at": "2026-11-21T20:01:05Z", "count": 7,
             "kind": "lane-suspected", "lane": 1, "path": 0,
             "text": "lane 1 on path 0 is silent: suspected"},
            {"at": "2026-11-21T20:01:06Z", "count": 1, "kind": "ended", "result": "completed",
             "text": "completed"},
        ]))
        .unwrap();
        insta::assert_snapshot!(events(&view, &list), @r"
        web from a to b, as seen by this host since 2026-11-21T20:00:00.000Z
        +0.000 s   asked for
        +1.500 s   lane 1 on path 0 is silent: suspected (7 times until +65.000 s)
        +66.000 s  completed
        ");
        assert!(events(&view, &[]).contains("nothing is kept"));
        let mut value = serde_json::to_value(&view).unwrap();
        value["role"] = json!("destination");
        value["expansion"] = json!({
            "chunks": 1, "raw_bytes": 4096, "wire_bytes": 1024, "passed_bytes": 0,
            "times": {"unpacking_ms": 0, "fetching_ms": 0, "expanding_ms": 0, "checking_ms": 0, "storing_ms": 0,
                      "processors_ms": 0, "hypervisor_ms": 0},
        });
        let arrived = serde_json::from_value(value).unwrap();
        let told = events(&arrived, &list);
        assert!(
            told.contains("\nexpansion: 1 KiB became 4 KiB\n+0.000 s"),
            "{told}"
        );
        assert!(history(&[]).contains("no guest has moved"));
    }
}
