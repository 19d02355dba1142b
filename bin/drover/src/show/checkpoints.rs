//! What a host keeps of guests that left, and of those that arrived.

use drover_api::CheckpointsView;

use super::{row, table};

/// `drover checkpoints`
pub fn checkpoints(view: &CheckpointsView) -> String {
    if view.size.0 == 0 {
        return "none are kept here (`checkpoints.size` in the agent's configuration)\n".to_owned();
    }
    let mut rows = vec![row(&["VM", "KIND", "SIZE", "LEFT OUT", "SINCE", "UNTIL"])];
    for kept in &view.checkpoints {
        rows.push(vec![
            kept.vm.to_string(),
            kept.kind.to_string(),
            kept.bytes.to_string(),
            format!("{} pages", kept.left_out),
            format!("{:.0}", kept.since),
            format!("{:.0}", kept.until),
        ]);
    }
    let mut sum = format!("{} of {} taken\n", view.taken, view.size);
    if let Some(why) = &view.away {
        sum += &format!("not there for now: {why}\n");
    }
    if view.checkpoints.is_empty() {
        return sum;
    }
    table(&rows) + &sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checkpoints_are_listed_with_what_they_take() {
        let kept = json!({
            "size": 64_u64 << 30, "taken": 3_u64 << 30, "checkpoints": [{
                "vm": "web", "bytes": 2_u64 << 30, "left_out": 7,
                "since": "2026-11-24T10:00:00.25Z", "until": "2026-11-25T10:00:00.25Z",
            }],
        });
        let mut view: CheckpointsView = serde_json::from_value(kept).unwrap();
        let text = checkpoints(&view);
        assert!(
            text.contains("web  checkpoint  2 GiB  7 pages   2026-11-24T10:00:00Z"),
            "{text}"
        );
        assert!(text.ends_with("3 GiB of 64 GiB taken\n"), "{text}");
        view.away = Some("/ssd has no mark".to_owned());
        let text = checkpoints(&view);
        assert!(
            text.ends_with("taken\nnot there for now: /ssd has no mark\n"),
            "{text}"
        );
        view.away = None;
        view.checkpoints.clear();
        assert_eq!(checkpoints(&view), "3 GiB of 64 GiB taken\n");
        view.size.0 = 0;
        assert!(checkpoints(&view).starts_with("none are kept here"));
    }
}
