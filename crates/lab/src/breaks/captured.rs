//! Hosts of a lab, captured by `drover doctor capture`, with a server laid over what was captured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::catalogue::{Break, Written};
use super::server;
use crate::command::run;
use crate::lab::host_of;
use crate::settings::LabName;

/// How many hosts are captured: what is wrong is written of the last.
const HOSTS: usize = 2;

/// What the kernel told by netlink, in a captured host.
const TOLD: &str = "told.json";

/// Two captured hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Their folders, for `drover doctor --captured`.
    pub folders: Vec<PathBuf>,
}

/// Captures the first hosts of a lab that is up and lays a server over each, with what these breaks write of
/// the second; what was captured before is replaced.
///
/// # Errors
/// What `drover doctor capture` says, or files that cannot be written.
pub(super) async fn capture(lab: &LabName, breaks: &[&Break], drover: &Path) -> Result<Captured> {
    let mut folders = Vec::new();
    for number in 0..HOSTS {
        let host = host_of(lab, number);
        let folder = host.folder().join("captured");
        remove(&folder)?;
        let (program, to) = (drover.to_string_lossy(), folder.to_string_lossy());
        let enter = ["netns", "exec", host.namespace()];
        let words = [&enter[..], &[&program, "doctor", "capture", &to]].concat();
        run("ip", &words).await?;
        let written = breaks.iter().flat_map(|broken| broken.written);
        let written: Vec<_> = written.filter(|_| number + 1 == HOSTS).collect();
        lay(&folder, &host.name, &written)
            .with_context(|| format!("cannot lay a server over {}", folder.display()))?;
        folders.push(folder);
    }
    Ok(Captured { folders })
}

fn lay(folder: &Path, host: &str, written: &[&Written]) -> Result<()> {
    for folder in server::NOT_ITS.map(|of_lab| folder.join(of_lab)) {
        remove(&folder)?;
    }
    let path = folder.join(TOLD);
    let mut told: Value = serde_json::from_slice(&fs::read(&path)?)?;
    told["host"] = host.into();
    told["irqbalance"] = false.into();
    let nics = told["nics"].as_array_mut().context("no NICs were told")?;
    // A bridge that was made on the host stays what it is.
    let name = |nic: &Value| nic["interface"]["name"].as_str().map(str::to_owned);
    let mut adapters = Vec::new();
    for nic in nics.iter_mut() {
        if let Some(name) = name(nic).filter(|name| name.starts_with("nic")) {
            server::tell(adapters.len(), nic);
            adapters.push(name);
        }
    }
    for (path, text) in server::files(&adapters) {
        put(folder, &path, &text)?;
    }
    for written in written {
        match written {
            Written::File(path, text) => put(folder, path, text)?,
            Written::Adapter(adapter) => {
                let first = nics
                    .iter_mut()
                    .find(|nic| name(nic) == adapters.first().cloned());
                first.context("no NIC was told")?["ethtool"] = adapter.told();
            }
        }
    }
    fs::write(&path, serde_json::to_vec_pretty(&told)?)?;
    Ok(())
}

fn put(root: &Path, path: &str, text: &str) -> io::Result<()> {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, format!("{text}\n"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
