use std::fmt;

use serde_json::Value;

use crate::machine::{Boxed, MachineEvent};
use crate::progress::MigrationStatus;
use crate::qmp::{Event, Events, Notice, excerpt};

/// What an adapter's machine tells, one after the other.
pub trait Teller: Send + Sync {
    /// The next thing. Safe to cancel: nothing is lost.
    fn next(&mut self) -> Boxed<'_, MachineEvent>;
}

/// A reader of what a machine tells, from when it was made.
pub struct MachineEvents(Box<dyn Teller>);

impl fmt::Debug for MachineEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineEvents").finish_non_exhaustive()
    }
}

impl MachineEvents {
    /// Those that an adapter tells.
    #[must_use]
    pub fn new(teller: impl Teller + 'static) -> Self {
        Self(Box::new(teller))
    }

    /// The next one. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> MachineEvent {
        self.0.next().await
    }
}

/// What QEMU tells over its monitor.
pub(crate) struct OfQmp(pub(crate) Events);

impl Teller for OfQmp {
    fn next(&mut self) -> Boxed<'_, MachineEvent> {
        Box::pin(async move {
            match self.0.next().await {
                Notice::Event(event) => understand(&event),
                Notice::Missed(missed) => MachineEvent::Missed(missed),
                Notice::Closed(closed) => MachineEvent::Disconnected {
                    reason: closed.to_string(),
                },
            }
        })
    }
}

/// Source: `qapi/run-state.json` and `qapi/migration.json` of QEMU.
pub(crate) fn understand(event: &Event) -> MachineEvent {
    let at = event.at;
    let data = &event.data;
    match event.name.as_str() {
        "STOP" => MachineEvent::Stopped { at },
        "RESUME" => MachineEvent::Resumed { at },
        "MIGRATION" => {
            let status = MigrationStatus::from_word(data["status"].as_str().unwrap_or(""));
            MachineEvent::MigrationStatus { status, at }
        }
        "MIGRATION_PASS" => MachineEvent::Round {
            round: data["pass"].as_u64().unwrap_or(0),
            at,
        },
        "SHUTDOWN" => MachineEvent::Shutdown {
            by_guest: data["guest"] == Value::Bool(true),
            reason: excerpt(data["reason"].as_str().unwrap_or("unknown")),
            at,
        },
        name => MachineEvent::Other {
            name: name.to_owned(),
            at,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::UnixMicros;
    use serde_json::json;

    fn read(name: &str, data: Value) -> MachineEvent {
        understand(&Event {
            name: name.into(),
            at: UnixMicros(5),
            data,
        })
    }

    #[test]
    fn events_of_a_migration_are_understood_and_the_rest_keeps_its_name() {
        let at = UnixMicros(5);
        assert_eq!(read("STOP", Value::Null), MachineEvent::Stopped { at });
        assert_eq!(read("RESUME", Value::Null), MachineEvent::Resumed { at });
        let status = MigrationStatus::Completed;
        let event = MachineEvent::MigrationStatus { status, at };
        assert_eq!(read("MIGRATION", json!({"status": "completed"})), event);
        assert_eq!(
            read("MIGRATION_PASS", json!({"pass": 2})),
            MachineEvent::Round { round: 2, at }
        );
        let reason = "guest-shutdown".to_owned();
        let event = MachineEvent::Shutdown {
            by_guest: true,
            reason: reason.clone(),
            at,
        };
        assert_eq!(
            read("SHUTDOWN", json!({"guest": true, "reason": reason})),
            event
        );
        let event = MachineEvent::Other {
            name: "RTC_CHANGE".into(),
            at,
        };
        assert_eq!(read("RTC_CHANGE", json!({"offset": 1})), event);
    }

    #[test]
    fn events_with_members_of_the_wrong_kind_do_no_harm() {
        let at = UnixMicros(5);
        for strange in [
            Value::Null,
            json!(1),
            json!([]),
            json!({"status": 1, "pass": "x"}),
        ] {
            let status = MigrationStatus::Other(String::new());
            let event = MachineEvent::MigrationStatus { status, at };
            assert_eq!(read("MIGRATION", strange.clone()), event);
            let event = MachineEvent::Round { round: 0, at };
            assert_eq!(read("MIGRATION_PASS", strange.clone()), event);
            let reason = "unknown".to_owned();
            let event = MachineEvent::Shutdown {
                by_guest: false,
                reason,
                at,
            };
            assert_eq!(read("SHUTDOWN", strange), event);
        }
    }
}
