//! A guest that moves, and what is shown of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests"
)]

mod hosts;

use drover_api::{EventKind, EventView, MigrationPhase, MigrationRole, MigrationView};
use hosts::{A, B, FAST, Hosts};

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_moves_to_the_other_host_and_back_and_both_keep_the_history() {
    let Some(mut hosts) = Hosts::with_guest("move", FAST).await else {
        return;
    };
    for (from, to) in [(A, B), (B, A)] {
        let view = hosts.move_from(from).await;
        assert_eq!(view.role, MigrationRole::Source);
        assert!(view.total_ms.is_some_and(|total| total > 0), "{view:#?}");
        assert!(view.downtime_ms.is_some() && view.prepare_ms.is_some());
        assert_eq!(view.paths.len(), 2, "{view:#?}");
        assert!(view.cause.is_none() && view.ended_at.is_some(), "{view:#?}");
        let lost = view.notes.iter().find(|note| note.contains("lost"));
        assert_eq!(lost, None, "nothing was lost");
        hosts.guest_runs_only_on(to).await;
        let arrived = hosts.ended(to, view.id).await;
        assert_eq!(arrived.role, MigrationRole::Destination);
        assert_eq!(arrived.phase, MigrationPhase::Running);
        let lost = arrived.notes.iter().find(|note| note.contains("lost"));
        assert_eq!(lost, None, "nothing was lost");
        let told = hosts.client(from).events(view.id).await.unwrap();
        let seen = is_told(&told);
        let expected = [
            "asked",
            "agreed",
            "channels",
            "path",
            "path",
            "protection",
            "lane",
            "begun",
            "switchover",
            "handed-off",
            "runs",
            "ended",
        ];
        assert_eq!(seen, expected, "{told:#?}");
        let told = hosts.client(to).events(view.id).await.unwrap();
        let seen = is_told(&told);
        let expected = [
            "asked",
            "prepared",
            "channels",
            "path",
            "path",
            "protection",
            "lane",
            "arrived",
            "runs",
            "ended",
        ];
        assert_eq!(seen, expected, "{told:#?}");
        for (host, view) in [(from, &view), (to, &arrived)] {
            let events = hosts.client(host).events(view.id).await.unwrap();
            says_what_processors_were_held_to(view, &events);
        }
        let carried = view.traffic.sent_bytes.0;
        assert!(carried >= view.bytes.transferred.0, "{view:#?}");
        assert_eq!(
            arrived.traffic.received_bytes.0,
            carried + view.traffic.resent_bytes.0
        );
        assert_eq!(view.nics.len(), 2);
        assert!(view.channel_traffic.len() > 1, "{view:#?}");
    }
    // The history outlives the agents, newest first.
    for host in [A, B] {
        let before = hosts.client(host).migrations().await.unwrap();
        let events = hosts.client(host).events(before[0].id).await.unwrap();
        assert_eq!(before.len(), 2);
        assert!(before[0].started_at > before[1].started_at);
        hosts.kill_agent(host).await;
        hosts.start_agent(host).await;
        assert_eq!(hosts.client(host).migrations().await.unwrap(), before);
        let again = hosts.client(host).events(before[0].id).await.unwrap();
        assert_eq!(again, events);
    }
    hosts.guest_runs_only_on(A).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_moves_are_forgotten_while_the_agent_runs() {
    let Some(mut hosts) = Hosts::new("forget", FAST).await else {
        return;
    };
    let records = hosts.host(A).state().join("migrations");
    std::fs::create_dir_all(&records).unwrap();
    let past = include_str!("corpus/journal/ok-destination");
    let ids: Vec<String> = (0..200)
        .map(|n| format!("01a201e0-91fb-74db-90ca-{n:012x}"))
        .collect();
    for id in &ids {
        let text = past.replace("01a201e0-91fb-74db-90ca-f11d9781b84e", id);
        std::fs::write(records.join(format!("{id}.destination.json")), text).unwrap();
    }
    let count = || std::fs::read_dir(&records).unwrap().count();
    hosts.start_agent(A).await;
    hosts.start_agent(B).await;
    assert_eq!(count(), 200);
    hosts.boot().await;
    hosts.move_from(A).await;
    hosts.move_from(B).await;
    hosts::until(hosts::PATIENCE, async || match count() {
        201 => Ok(()),
        count => Err(format!("{count} records")),
    })
    .await;
    let oldest = records.join(format!("{}.destination.json", ids[0]));
    assert!(!oldest.exists());
    let known = hosts.client(A).migrations().await.unwrap();
    assert_eq!(known.len(), 201);
    hosts.guest_runs_only_on(A).await;
}

/// Either they were, or the reason is a note as well; how long they slept is told where this machine's kernel counts it.
fn says_what_processors_were_held_to(view: &MigrationView, events: &[EventView]) {
    let latency = view.cpu_latency.as_ref().unwrap();
    let noted = view.notes.iter().any(|note| note.contains("CPU latency"));
    match latency.held_us {
        Some(us) => assert_eq!((us, noted), (20, false), "{view:#?}"),
        None => assert!(noted && latency.why_not.is_some(), "{view:#?}"),
    }
    let times = |of: fn(&EventKind) -> bool| events.iter().filter(|event| of(&event.kind)).count();
    let chosen = times(|kind| matches!(kind, EventKind::CpuLatencyChosen { .. }));
    let slept = times(|kind| matches!(kind, EventKind::Slept { .. }));
    let counted = usize::from(!view.idle_states.is_empty());
    assert_eq!((chosen, slept), (1, counted), "{events:#?}");
}

/// The kinds of events in their order; lanes as one, and without what depends on the guest.
fn is_told(events: &[EventView]) -> Vec<&'static str> {
    let word = |event: &EventView| match event.kind {
        EventKind::Asked => Some("asked"),
        EventKind::Prepared { .. } => Some("prepared"),
        EventKind::Agreed { .. } => Some("agreed"),
        EventKind::ChannelsChosen { .. } => Some("channels"),
        EventKind::PathChosen { .. } => Some("path"),
        EventKind::LanesProtected { .. } => Some("protection"),
        EventKind::LaneUp { .. } => Some("lane"),
        EventKind::Begun => Some("begun"),
        EventKind::Switchover => Some("switchover"),
        EventKind::HandedOff => Some("handed-off"),
        EventKind::Arrived => Some("arrived"),
        EventKind::Runs => Some("runs"),
        EventKind::Ended { .. } => Some("ended"),
        _ => None,
    };
    let mut words: Vec<_> = events.iter().filter_map(word).collect();
    // A path may get more lanes later, too, if they carry more.
    let mut first = true;
    words.retain(|word| *word != "lane" || std::mem::take(&mut first));
    words
}
