use std::path::Path;

use drover_types::Bytes;
use serde_json::{Value, json};

use super::machine::QemuMachine;
use crate::machine::{Answer, MachineError};
use crate::qmp::excerpt;
use crate::storage::{Copied, CopyState, Drive, Export, Mirror, Storage};

const EXPORT: &str = "export its disks";
const FORGET: &str = "let go of a disk's copy";

impl Storage for QemuMachine {
    fn drives(&self) -> Answer<'_, Vec<Drive>> {
        Box::pin(async {
            let told = self.tell("tell of its disks", "query-block", Value::Null);
            Ok(drives(&told.await?))
        })
    }

    fn export<'a>(&'a self, socket: &'a Path, exports: &'a [Export]) -> Answer<'a, ()> {
        Box::pin(async move {
            let path = utf8(EXPORT, socket)?;
            let address = json!({"type": "unix", "data": {"path": path}});
            // From 10.0 on it can be had that a connection takes as long as it takes to agree; without, 10 s from 9.1 on.
            let patient = json!({"addr": address, "handshake-max-seconds": 0});
            let listens = match self.tell(EXPORT, "nbd-server-start", patient).await {
                Err(MachineError::Refused { .. }) => {
                    let plain = json!({"addr": address});
                    self.tell(EXPORT, "nbd-server-start", plain).await
                }
                listens => listens,
            };
            listens?;
            for Export { name, node } in exports {
                let export = json!({
                    "type": "nbd", "id": name, "name": name, "node-name": node, "writable": true
                });
                self.tell(EXPORT, "block-export-add", export).await?;
            }
            Ok(())
        })
    }

    fn end_exports(&self) -> Answer<'_, ()> {
        Box::pin(async {
            const END: &str = "end the exports of its disks";
            let ended = self.tell(END, "nbd-server-stop", Value::Null).await;
            let Err(MachineError::Refused { operation, reason }) = ended else {
                return ended.map(drop);
            };
            // It is refused where there is no server. Where there are exports still, the guest must not run.
            let left = self.tell(END, "query-block-exports", Value::Null).await?;
            match left.as_array().is_some_and(Vec::is_empty) {
                true => Ok(()),
                false => Err(MachineError::Refused { operation, reason }),
            }
        })
    }

    fn mirror<'a>(&'a self, mirror: &'a Mirror<'a>) -> Answer<'a, ()> {
        Box::pin(async move {
            const COPY: &str = "copy a disk";
            let Mirror { name, node, socket } = *mirror;
            let path = utf8(COPY, socket)?;
            let target = json!({
                "driver": "nbd", "node-name": name, "export": name,
                "server": {"type": "unix", "path": path},
                // What reads as zeroes crosses as such, and takes no room where that can be.
                "discard": "unmap", "detect-zeroes": "unmap",
            });
            self.tell(COPY, "blockdev-add", target).await?;
            let job = json!({
                "job-id": name, "device": node, "target": name, "sync": "full",
                "copy-mode": "background", "on-source-error": "report", "on-target-error": "report",
                // How it ended is asked for.
                "auto-dismiss": false,
            });
            self.tell(COPY, "blockdev-mirror", job).await.map(drop)
        })
    }

    fn copies(&self) -> Answer<'_, Vec<Copied>> {
        Box::pin(async {
            let told = self.tell("tell how its copies stand", "query-jobs", Value::Null);
            Ok(copies(&told.await?))
        })
    }

    fn end_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let end = json!({"device": name, "force": false});
            let told = self.tell("end a disk's copy", "block-job-cancel", end);
            told.await.map(drop)
        })
    }

    fn pause_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let told = self.tell("pause a disk's copy", "job-pause", json!({"id": name}));
            told.await.map(drop)
        })
    }

    fn give_copy_up<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let end = json!({"device": name, "force": true});
            let told = self.tell("give a disk's copy up", "block-job-cancel", end);
            told.await.map(drop)
        })
    }

    fn cut_copy<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(self.cut(
            "cut a copy's connection",
            json!({"type": "block-node", "node-name": name}),
        ))
    }

    fn let_go<'a>(&'a self, name: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let job = self.tell(FORGET, "job-dismiss", json!({"id": name})).await;
            there_was_none(job)?;
            let node = json!({"node-name": name});
            there_was_none(self.tell(FORGET, "blockdev-del", node).await)
        })
    }

    fn switch_over(&self) -> Answer<'_, ()> {
        Box::pin(async {
            let at = json!({"state": "pre-switchover"});
            let told = self.tell("go on with the migration", "migrate-continue", at);
            told.await.map(drop)
        })
    }
}

/// Of what QEMU does not find, which it tells in words alone.
fn there_was_none(answer: Result<Value, MachineError>) -> Result<(), MachineError> {
    match answer {
        Err(MachineError::Refused { reason, .. })
            if reason.contains("not found") || reason.contains("Failed to find") =>
        {
            Ok(())
        }
        answer => answer.map(drop),
    }
}

fn utf8<'a>(operation: &'static str, path: &'a Path) -> Result<&'a str, MachineError> {
    path.to_str().ok_or_else(|| MachineError::Invalid {
        operation,
        problem: format!("{path:?} is not UTF-8"),
    })
}

/// Reads the answer to `query-block`.
fn drives(told: &Value) -> Vec<Drive> {
    let all = told.as_array().into_iter().flatten();
    all.filter_map(drive).collect()
}

fn drive(told: &Value) -> Option<Drive> {
    let inserted = told.get("inserted")?;
    let text = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    let named = text(told, "device").filter(|name| !name.is_empty());
    Some(Drive {
        name: named.or_else(|| text(told, "qdev"))?,
        node: text(inserted, "node-name")?,
        format: text(inserted, "drv")?,
        file: text(inserted, "file")?,
        read_only: inserted["ro"].as_bool()?,
    })
}

/// Reads the answer to `query-jobs` (QEMU's `qapi/job.json`, `JobInfo`).
fn copies(told: &Value) -> Vec<Copied> {
    let all = told.as_array().into_iter().flatten();
    all.filter_map(copied).collect()
}

fn copied(told: &Value) -> Option<Copied> {
    let bytes = |name: &str| Bytes(told[name].as_u64().unwrap_or(0));
    let status = told["status"].as_str()?;
    let state = match status {
        // The latter while the guest is being stopped.
        "ready" | "standby" => CopyState::Ready,
        "concluded" => CopyState::Ended(told["error"].as_str().map(excerpt)),
        _ => CopyState::Copies,
    };
    (told["type"].as_str() == Some("mirror")).then_some(Copied {
        name: told["id"].as_str()?.to_owned(),
        state,
        done: bytes("current-progress"),
        total: bytes("total-progress"),
        stands_still: matches!(status, "paused" | "standby" | "concluded"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_the_drives_that_have_something_in_them() {
        // Of QEMU 10.0.2, shortened.
        let told = json!([
            {"device": "virtio0", "qdev": "/machine/peripheral-anon/device[0]/virtio-backend",
             "inserted": {"node-name": "#block103", "drv": "qcow2", "ro": false, "file": "/a/web.qcow2"}},
            {"device": "", "qdev": "/machine/peripheral/data/virtio-backend",
             "inserted": {"node-name": "data", "drv": "file", "ro": true, "file": "/a/data.img"}},
            {"device": "ide2-cd0", "type": "unknown"},
        ]);
        let found = drives(&told);
        let told: Vec<_> = found
            .iter()
            .map(|drive| (drive.name.as_str(), drive.node.as_str(), drive.read_only))
            .collect();
        let attached = "/machine/peripheral/data/virtio-backend";
        assert_eq!(
            told,
            [("virtio0", "#block103", false), (attached, "data", true)]
        );
        assert_eq!(found[0].file, "/a/web.qcow2");
        assert_eq!(drives(&json!({"a": 1})), []);
    }

    #[test]
    fn a_copy_is_ready_once_it_is_the_same_and_ends_with_a_reason_where_it_failed() {
        let told = |status: &str, more: Value| {
            let mut job = json!({"id": "a", "type": "mirror", "status": status,
                "current-progress": 3, "total-progress": 7});
            if let (Some(job), Some(more)) = (job.as_object_mut(), more.as_object()) {
                job.extend(more.clone());
            }
            copies(&json!([job])).pop().unwrap()
        };
        let running = told("running", Value::Null);
        assert_eq!((running.done, running.total), (Bytes(3), Bytes(7)));
        let state = |status, more| told(status, more).state;
        assert_eq!(running.state, CopyState::Copies);
        assert_eq!(state("paused", Value::Null), CopyState::Copies);
        for (status, stands_still) in [
            ("running", false),
            ("ready", false),
            ("paused", true),
            ("standby", true),
        ] {
            assert_eq!(
                told(status, Value::Null).stands_still,
                stands_still,
                "{status}"
            );
        }
        assert_eq!(state("ready", Value::Null), CopyState::Ready);
        assert_eq!(state("concluded", Value::Null), CopyState::Ended(None));
        let failed = state("concluded", json!({"error": "Input/output error"}));
        assert_eq!(failed, CopyState::Ended(Some("Input/output error".into())));
        let other = json!([{"id": "b", "type": "backup", "status": "running"}]);
        assert_eq!(copies(&other), []);
    }
}
