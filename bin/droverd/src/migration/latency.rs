//! What a relay's report says of its host's processors, as it is shown.

use drover_api::{CpuLatencyView, EventKind};
use drover_carrier::Latency;

use super::snapshot::Snapshot;

/// Shows it, and tells once in the history whether processors are held, and at the end how long they slept. `told_end`
/// is whether that was told.
pub fn show(snapshot: &mut Snapshot, latency: &Latency, told_end: &mut bool) {
    let cpu_latency = CpuLatencyView::from(&latency.cpu);
    if snapshot.view.cpu_latency.as_ref() != Some(&cpu_latency) {
        snapshot.view.cpu_latency = Some(cpu_latency.clone());
        snapshot.record(EventKind::CpuLatencyChosen { cpu_latency });
    }
    let Ok(idle) = &latency.idle else {
        return;
    };
    snapshot.view.idle_states = idle.iter().map(Into::into).collect();
    if latency.over && !std::mem::replace(told_end, true) {
        let idle_states = snapshot.view.idle_states.clone();
        snapshot.record(EventKind::Slept { idle_states });
    }
}

#[cfg(test)]
mod tests {
    use drover_types::{CpuLatency, IdleTime};

    use super::super::snapshot::samples::{leaving, told_since};
    use super::*;

    fn latency(cpu: CpuLatency, time_us: u64, over: bool) -> Latency {
        let state = IdleTime {
            state: "C1E".into(),
            latency_us: 10,
            time_us,
        };
        Latency {
            cpu,
            idle: Ok(vec![state]),
            over,
        }
    }

    #[test]
    fn history_tells_once_what_processors_are_held_to_and_once_how_long_they_slept() {
        let (mut snapshot, mut told_end) = (leaving(), false);
        let held = || CpuLatency::Held { us: 20 };
        for (time_us, over) in [
            (0, false),
            (900_000, false),
            (1_500_000, true),
            (1_500_000, true),
        ] {
            show(
                &mut snapshot,
                &latency(held(), time_us, over),
                &mut told_end,
            );
        }
        assert_eq!(
            told_since(&snapshot),
            [
                "CPU latency: held at 20 us",
                "processors slept: C1E (10 us) 1.5 s"
            ]
        );
        assert_eq!(snapshot.view.notes, Vec::<String>::new());
        assert_eq!(snapshot.view.idle_states[0].time_ms, 1500);
    }

    #[test]
    fn processors_that_could_not_be_held_are_a_note_and_those_that_are_not_to_be_are_none() {
        let refused = CpuLatency::Refused {
            why: "there is no device".into(),
        };
        for (cpu, notes) in [
            (
                refused,
                vec!["CPU latency: not held, because there is no device"],
            ),
            (CpuLatency::Off, vec![]),
        ] {
            let mut snapshot = leaving();
            show(&mut snapshot, &latency(cpu, 0, false), &mut false);
            assert_eq!(snapshot.view.notes, notes);
            assert_eq!(told_since(&snapshot).len(), 1);
        }
    }
}
