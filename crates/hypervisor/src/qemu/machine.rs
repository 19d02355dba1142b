use std::time::Duration;

use drover_types::Bytes;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::status;
use crate::events::{MachineEvents, OfQmp};
use crate::inside::Inside;
use crate::limits;
use crate::machine::{Answer, Boxed, Machine, MachineError, MigrationAddress, Movable};
use crate::process::{Exit, ProcessId, Watched};
use crate::progress::{MigrationProgress, MigrationStatus, RunState};
use crate::qmp::{Qmp, QmpError, Version, excerpt};
use crate::settings::{AppliedSettings, MigrationSettings};

const SAMPLE: &str = "sample the dirty rate";

/// A guest in a QEMU process.
#[derive(Debug)]
pub struct QemuMachine {
    qmp: Qmp,
    /// Only for what must get through while the other one waits.
    oob: Qmp,
    process: Watched,
    sampling: Mutex<Sampling>,
}

/// Whether QEMU may be told to sample the dirty rate. Told twice before its thread has begun it runs two of them, and
/// crashes with its guest (`get_dirtyrate_thread` in QEMU's `migration/dirtyrate.c`: the second one returns without
/// leaving RCU).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sampling {
    /// What was begun has ended.
    Ended,
    /// What was begun may not have: it may be told again by the next connection only, which QEMU takes up without
    /// what was still to be done for this one.
    InDoubt,
}

impl QemuMachine {
    pub(super) fn new(qmp: Qmp, oob: Qmp, process: Watched) -> Self {
        let sampling = Mutex::new(Sampling::Ended);
        Self {
            qmp,
            oob,
            process,
            sampling,
        }
    }

    /// Its monitor, for commands that [`Machine`] does not have.
    #[must_use]
    pub fn qmp(&self) -> &Qmp {
        &self.qmp
    }

    pub(super) async fn tell(
        &self,
        operation: &'static str,
        command: &str,
        arguments: Value,
    ) -> Result<Value, MachineError> {
        self.qmp
            .execute(command, arguments)
            .await
            .map_err(|error| explain(operation, error))
    }

    /// Cuts connections of this kind (QEMU's `qapi/yank.json`, `YankInstance`).
    pub(super) async fn cut(
        &self,
        operation: &'static str,
        instance: Value,
    ) -> Result<(), MachineError> {
        let yank = json!({"instances": [instance]});
        match self.oob.execute_oob("yank", yank).await {
            Ok(_) => Ok(()),
            // There is no connection (any more). Source: QEMU's `util/yank.c`.
            Err(QmpError::Refused { class, .. }) if class == "DeviceNotFound" => Ok(()),
            Err(error) => Err(explain(operation, error)),
        }
    }

    async fn resume_checked(&self, has_left: bool) -> Result<(), MachineError> {
        const RESUME: &str = "run the guest";
        let state = self.state().await?;
        let why = match state {
            RunState::PostMigrate if has_left => "it has left this host and may run on another",
            RunState::InMigrate => "it has not arrived yet",
            _ => return self.tell(RESUME, "cont", Value::Null).await.map(drop),
        };
        Err(MachineError::WrongState {
            operation: RESUME,
            state,
            why,
        })
    }

    /// One at a time; while another one samples it is refused as QEMU itself does.
    async fn sample_dirtied(&self, time: Duration) -> Result<Option<Bytes>, MachineError> {
        let Ok(mut sampling) = self.sampling.try_lock() else {
            return Err(MachineError::Refused {
                operation: SAMPLE,
                reason: "it is being sampled already".to_owned(),
            });
        };
        if *sampling == Sampling::InDoubt {
            return Ok(None);
        }
        let memory = self
            .tell(SAMPLE, "query-memory-size-summary", Value::Null)
            .await?;
        let pages = limits::dirty_sample_pages(memory["base-memory"].as_u64().unwrap_or(0));
        let how = json!({"calc-time": time.as_secs(), "sample-pages": pages});
        // Also where this is dropped.
        *sampling = Sampling::InDoubt;
        let begun = self.tell(SAMPLE, "calc-dirty-rate", how).await;
        if let Err(MachineError::Refused { .. }) = &begun {
            *sampling = Sampling::Ended;
        }
        begun?;
        tokio::time::sleep(time).await; // what is measured takes that long
        let measured = self.measured(time).await?;
        *sampling = Sampling::Ended;
        Ok(measured)
    }

    /// What the sample says, once it has ended.
    async fn measured(&self, time: Duration) -> Result<Option<Bytes>, MachineError> {
        let measured = async {
            loop {
                let answer = self.tell(SAMPLE, "query-dirty-rate", Value::Null).await?;
                if answer["status"].as_str() == Some("measured") {
                    return Ok(status::dirtied(&answer, time));
                }
                tokio::time::sleep(limits::DIRTY_POLL).await;
            }
        };
        let within = limits::DIRTY_WAIT;
        timeout(within, measured)
            .await
            .unwrap_or(Err(MachineError::NoAnswer {
                operation: SAMPLE,
                within,
            }))
    }

    async fn end(&self, within: Duration) -> Result<Exit, MachineError> {
        let pid = self.process.id().pid;
        let ended = timeout(within, self.process.exited()).await;
        ended.map_err(|_| MachineError::StillRunning { pid, within })
    }
}

impl Machine for QemuMachine {
    fn process(&self) -> ProcessId {
        self.process.id()
    }

    fn machine_type(&self) -> Answer<'_, String> {
        Box::pin(async {
            let operation = "tell the machine type";
            let property = json!({"path": "/machine", "property": "type"});
            let answer = self.tell(operation, "qom-get", property).await?;
            let name = answer
                .as_str()
                .and_then(|name| name.strip_suffix("-machine"));
            let missing = MachineError::Unexpected {
                operation,
                missing: "machine type",
            };
            name.map(excerpt).ok_or(missing)
        })
    }

    fn pause(&self) -> Answer<'_, ()> {
        Box::pin(async {
            self.tell("pause the guest", "stop", Value::Null)
                .await
                .map(drop)
        })
    }

    fn power_down(&self) -> Answer<'_, ()> {
        let told = async {
            self.tell("press the power button", "system_powerdown", Value::Null)
                .await
                .map(drop)
        };
        Box::pin(told)
    }

    fn migration_blockers(&self) -> Answer<'_, Vec<String>> {
        Box::pin(async {
            let operation = "tell what speaks against a migration";
            let info = self.tell(operation, "query-migrate", Value::Null).await?;
            Ok(status::blockers(&info))
        })
    }

    fn inside(&self) -> Answer<'_, Inside> {
        Box::pin(self.look_inside())
    }
}

impl Movable for QemuMachine {
    fn version(&self) -> Version {
        self.qmp.version()
    }

    fn state(&self) -> Answer<'_, RunState> {
        Box::pin(async {
            let operation = "tell the guest's state";
            let answer = self.tell(operation, "query-status", Value::Null).await?;
            let missing = MachineError::Unexpected {
                operation,
                missing: "status",
            };
            answer["status"]
                .as_str()
                .map(RunState::from_word)
                .ok_or(missing)
        })
    }

    fn resume(&self) -> Answer<'_, ()> {
        Box::pin(self.resume_checked(true))
    }

    fn run_on(&self) -> Answer<'_, ()> {
        Box::pin(self.resume_checked(false))
    }

    fn quit(&self) -> Answer<'_, Exit> {
        Box::pin(async {
            match self.tell("quit", "quit", Value::Null).await {
                // QEMU may be gone before its answer is read.
                Ok(_) | Err(MachineError::Lost { .. }) => self.end(limits::EXIT).await,
                Err(error) => Err(error),
            }
        })
    }

    fn kill(&self) -> Answer<'_, Exit> {
        Box::pin(async {
            self.process.kill();
            self.end(limits::EXIT).await
        })
    }

    fn exited(&self) -> Boxed<'_, Exit> {
        Box::pin(self.process.exited())
    }

    fn exit(&self) -> Option<Exit> {
        self.process.exit()
    }

    fn set_migration<'a>(&'a self, settings: &'a MigrationSettings) -> Answer<'a, AppliedSettings> {
        Box::pin(self.apply(settings))
    }

    fn listen_incoming<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            let operation = "listen for a migration";
            let uri = uri(operation, address)?;
            self.tell(operation, "migrate-incoming", json!({"uri": uri}))
                .await
                .map(drop)
        })
    }

    fn migrate<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            let operation = "migrate";
            let uri = uri(operation, address)?;
            self.tell(operation, "migrate", json!({"uri": uri}))
                .await
                .map(drop)
        })
    }

    fn start_postcopy(&self) -> Answer<'_, ()> {
        const POSTCOPY: &str = "go on by postcopy";
        let told = async {
            match self.migration().await?.status {
                MigrationStatus::PostcopyActive => return Ok(()),
                status if status == MigrationStatus::None || status.is_final() => {
                    let reason = format!("no migration is under way ({status})");
                    return Err(MachineError::Refused {
                        operation: POSTCOPY,
                        reason,
                    });
                }
                _ => {}
            }
            self.tell(POSTCOPY, "stop", Value::Null).await?;
            self.tell(POSTCOPY, "migrate-start-postcopy", Value::Null)
                .await
                .map(drop)
        };
        Box::pin(told)
    }

    fn migrate_again<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            let operation = "connect its migration again";
            let uri = uri(operation, address)?;
            self.tell(operation, "migrate", json!({"uri": uri, "resume": true}))
                .await
                .map(drop)
        })
    }

    fn recover_incoming<'a>(&'a self, address: &'a MigrationAddress) -> Answer<'a, ()> {
        Box::pin(async move {
            let operation = "listen for the rest of a migration";
            let uri = uri(operation, address)?;
            let answer = self.oob.execute_oob("migrate-recover", json!({"uri": uri}));
            answer
                .await
                .map(drop)
                .map_err(|error| explain(operation, error))
        })
    }

    fn set_downtime_limit(&self, limit: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            let parameters = json!({"downtime-limit": millis});
            self.tell(
                "set the downtime limit",
                "migrate-set-parameters",
                parameters,
            )
            .await
            .map(drop)
        })
    }

    fn cancel(&self) -> Answer<'_, ()> {
        let told = async {
            self.tell("cancel the migration", "migrate_cancel", Value::Null)
                .await
                .map(drop)
        };
        Box::pin(told)
    }

    fn lift_dirty_limit(&self) -> Answer<'_, ()> {
        Box::pin(async {
            let operation = "lift the limit of the guest's writes";
            match self
                .qmp
                .execute("cancel-vcpu-dirty-limit", Value::Null)
                .await
            {
                // Before QEMU 7.1 there is none.
                Err(QmpError::Refused { class, .. }) if class == "CommandNotFound" => Ok(()),
                answer => answer.map(drop).map_err(|error| explain(operation, error)),
            }
        })
    }

    fn yank_migration(&self) -> Answer<'_, ()> {
        Box::pin(self.cut(
            "cut the migration's connections",
            json!({"type": "migration"}),
        ))
    }

    fn migration(&self) -> Answer<'_, MigrationProgress> {
        Box::pin(async {
            let operation = "tell how the migration stands";
            let info = self.tell(operation, "query-migrate", Value::Null).await?;
            Ok(status::progress(&info))
        })
    }

    fn dirtied(&self, within: Duration) -> Answer<'_, Option<Bytes>> {
        Box::pin(self.sample_dirtied(within))
    }

    fn events(&self) -> MachineEvents {
        MachineEvents::new(OfQmp(self.qmp.events()))
    }
}

fn explain(operation: &'static str, error: QmpError) -> MachineError {
    match error {
        QmpError::Refused { description, .. } => MachineError::Refused {
            operation,
            reason: description,
        },
        QmpError::TimedOut { within, .. } => MachineError::NoAnswer { operation, within },
        QmpError::Lost { source, .. } => MachineError::Lost {
            operation,
            reason: source.to_string(),
        },
        QmpError::TooManyWaiting { .. } => MachineError::Busy {
            operation,
            waiting: limits::COMMANDS_WAITING,
        },
        // Cannot come: that monitor is only ever opened with the capability.
        QmpError::NotOob { command } => MachineError::Invalid {
            operation,
            problem: format!("{command} needs a monitor with oob"),
        },
    }
}

/// An address in QEMU's notation.
fn uri(operation: &'static str, address: &MigrationAddress) -> Result<String, MachineError> {
    let path = match address {
        MigrationAddress::Uri(uri) => return Ok(uri.clone()),
        MigrationAddress::Unix(path) => path,
    };
    let invalid = |problem| MachineError::Invalid { operation, problem };
    let text = path
        .to_str()
        .ok_or_else(|| invalid(format!("{path:?} is not UTF-8")))?;
    if text.len() > limits::SOCKET_PATH_BYTES {
        return Err(invalid(format!(
            "{text} has {} bytes, a socket's path may have {}",
            text.len(),
            limits::SOCKET_PATH_BYTES
        )));
    }
    Ok(format!("unix:{text}"))
}
