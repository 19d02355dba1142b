//! Moves of disks, as people read them.

use std::fmt::Write as _;

use drover_api::StorageMoveView;

use crate::limits;
use crate::show::{row, table};

/// Events of a move that are shown with it.
const EVENTS_SHOWN: usize = 3;

/// All of them.
pub fn all(views: &[StorageMoveView]) -> String {
    if views.is_empty() {
        return "no disk of a guest of this host has moved to another file yet\n".to_owned();
    }
    let mut rows = vec![row(&["GUEST", "DISK", "PHASE", "COPIED", "FROM", "TO"])];
    rows.extend(views.iter().map(|view| {
        let copied = format!("{} of {}", view.copied, view.total);
        let (from, to) = (
            view.from.display().to_string(),
            view.to.display().to_string(),
        );
        let phase = view.phase.to_string();
        row(&[view.vm.as_str(), &view.disk, &phase, &copied, &from, &to])
    }));
    let mut text = table(&rows);
    let (ended, going): (Vec<_>, Vec<_>) = views.iter().partition(|view| view.phase.has_ended());
    let lately = ended.into_iter().take(limits::ENDED_SHOWN);
    for view in going.into_iter().chain(lately) {
        text.push_str(&notes(view));
    }
    text
}

/// What is to be known of one.
fn notes(view: &StorageMoveView) -> String {
    let mut text = String::new();
    let last = view.events.len().saturating_sub(EVENTS_SHOWN);
    let events = view.events.iter().skip(last);
    let events = events.map(|event| format!("{:.0}: {}", event.at, event.what));
    let cause = view.cause.iter().map(|why| format!("why: {why}"));
    let next = view.next.iter().map(|next| format!("next: {next}"));
    let lines: Vec<_> = events.chain(cause).chain(next).collect();
    if !lines.is_empty() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{} {}", view.vm, view.disk);
        for line in lines {
            let _ = writeln!(text, "  {line}");
        }
    }
    text
}

/// One that has ended well.
pub fn moved(view: &StorageMoveView) -> String {
    let (vm, disk, to) = (&view.vm, &view.disk, view.to.display());
    let paused = view.paused_ms.map_or_else(String::new, |ms| {
        format!("; the guest stood still for {ms} ms")
    });
    let mut text = format!("disk {disk} of guest {vm} is {to}{paused}\n");
    if let Some(next) = &view.next {
        let _ = writeln!(text, "{next}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view() -> StorageMoveView {
        serde_json::from_value(json!({
            "id": "01938f2e-7b1c-7000-8000-2f8e9d3c4b5a", "vm": "web", "disk": "vda",
            "from": "/images/web.img", "from_format": "raw", "to": "/fast/web.qcow2", "to_format": "qcow2",
            "remove_old": false, "phase": "moved", "copied": 1_048_576, "total": 2_097_152, "paused_ms": 12,
            "started_at": "2026-11-21T20:00:00Z", "next": "remove /images/web.img",
            "events": [{"at": "2026-11-21T20:00:01Z", "what": "the disk is /fast/web.qcow2"}],
        }))
        .unwrap()
    }

    #[test]
    fn moves_are_told_with_what_happened_and_what_to_do() {
        assert!(all(&[]).contains("no disk"));
        insta::assert_snapshot!(all(&[view()]), @r"
        GUEST  DISK  PHASE  COPIED          FROM             TO
        web    vda   moved  1 MiB of 2 MiB  /images/web.img  /fast/web.qcow2

        web vda
          2026-11-21T20:00:01Z: the disk is /fast/web.qcow2
          next: remove /images/web.img
        ");
        insta::assert_snapshot!(moved(&view()), @r"
        disk vda of guest web is /fast/web.qcow2; the guest stood still for 12 ms
        remove /images/web.img
        ");
    }
}
