//! Hosts of a lab, captured by `drover doctor capture`, with a server laid over what was captured.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::catalogue::{Break, Written};
use super::server::{self, Files};
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
/// the second, or of both; what was captured before is replaced.
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
        // An agent's guests are none of what is written here, and the one that listens by default is the machine's.
        let nobody = folder.with_extension("socket");
        let nobody = nobody.to_string_lossy();
        let capture = [&program, "--socket", &nobody, "doctor", "capture", &to];
        let words = [&enter[..], &capture].concat();
        run("ip", &words).await?;
        let is_of = |broken: &&&Break| number + 1 == HOSTS || broken.everywhere;
        let written = breaks.iter().filter(is_of);
        let written: Vec<_> = written.flat_map(|broken| broken.written).collect();
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
    told["lldpad"] = false.into();
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
    let mut files = server::files(&adapters);
    let first = nics
        .iter_mut()
        .find(|nic| name(nic) == adapters.first().cloned());
    let first = first.context("no NIC was told")?;
    for written in written {
        write(&mut files, first, written);
    }
    for (path, text) in files {
        put(folder, &path, &text)?;
    }
    fs::write(&path, serde_json::to_vec_pretty(&told)?)?;
    Ok(())
}

/// Has something be wrong with its files, or with what is told of its first NIC.
fn write(files: &mut Files, first: &mut Value, written: &Written) {
    let mut put = |path: String, text: &str| _ = files.insert(path, text.to_owned());
    match written {
        Written::File(path, text) => put((*path).to_owned(), text),
        Written::OfProcessors(file, text) => {
            server::of_processors(file).for_each(|path| put(path, text));
        }
        Written::Softnet { dropped, squeezed } => {
            let text = server::softnet(*dropped, *squeezed);
            put(server::SOFTNET.to_owned(), &text);
        }
        Written::Answers(answers) => first["ethtool"] = answers.told(),
        Written::Line(fabric) => fabric.tell(first),
        Written::Qdisc(kind) => first["qdisc"] = json!(kind),
        Written::Mtu(bytes) => first["interface"]["mtu"] = json!(bytes),
    }
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

#[cfg(test)]
mod tests {
    use drover_host::{Told, Tree, facts};

    use super::super::catalogue::{catalogue, check_together};
    use super::*;

    /// What a capture has of a host with two NICs, as far as a server does not replace it.
    fn capture_of(folder: &Path) {
        let nic = |name: &str, address: &str| {
            json!({
                "interface": {
                    "name": name, "addresses": [address], "speed": null, "mtu": 9000, "up": true,
                    "loopback": false, "tx_queues": 1, "rx_queues": 1, "rdma": null,
                },
                "has_folder": true, "enabled": true, "ethtool": {},
            })
        };
        let nics = [nic("nic0", "10.77.0.1/24"), nic("nic1", "10.77.1.1/24")];
        let told = json!({ "host": "x", "nics": nics, "irqbalance": null });
        fs::write(folder.join(TOLD), told.to_string()).unwrap();
    }

    /// What these write: files, and what is told of a NIC.
    fn written_by(breaks: &[&Break]) -> (Files, [Value; 5]) {
        let nics = ["nic0", "nic1"].map(str::to_owned);
        let mut files = server::files(&nics);
        let mut nic = json!({ "interface": { "name": "nic0", "mtu": 9000 } });
        server::tell(0, &mut nic);
        for written in breaks.iter().flat_map(|broken| broken.written) {
            write(&mut files, &mut nic, written);
        }
        let mtu = nic["interface"]["mtu"].take();
        let [ethtool, dcb, neighbours, qdisc] =
            ["ethtool", "dcb", "neighbours", "qdisc"].map(|part| nic[part].take());
        (files, [ethtool, dcb, neighbours, qdisc, mtu])
    }

    #[test]
    fn of_any_two_that_are_not_refused_each_is_written_as_it_is_alone() {
        let (whole, told) = written_by(&[]);
        let all = || catalogue().filter(|broken| broken.is_written());
        let mut together = 0;
        for (one, other) in all().flat_map(|one| all().map(move |other| (one, other))) {
            if check_together(&[one, other]).is_err() {
                continue;
            }
            together += 1;
            let (names, alone, both) = (
                format!("{} and {}", one.name, other.name),
                written_by(&[one]),
                written_by(&[one, other]),
            );
            for (path, text) in &alone.0 {
                let is_its = whole.get(path) != Some(text);
                assert!(!is_its || both.0.get(path) == Some(text), "{names}: {path}");
            }
            for (part, whole) in told.iter().enumerate() {
                let is_its = alone.1[part] != *whole;
                assert!(!is_its || both.1[part] == alone.1[part], "{names}: {part}");
            }
        }
        assert!(together > 0);
    }

    #[test]
    fn a_server_is_read_with_all_that_is_laid_and_each_thing_that_is_wrong_is_read_of_it() {
        let laid = |written: &[&Written]| {
            let folder = tempfile::tempdir().unwrap();
            capture_of(folder.path());
            lay(folder.path(), "b", written).unwrap();
            let told = fs::read(folder.path().join(TOLD)).unwrap();
            let told: Told = serde_json::from_slice(&told).unwrap();
            facts(&Tree::captured(folder.path()), &told)
        };
        let whole = laid(&[]);
        assert_eq!((whole.name.as_str(), whole.nics.len()), ("b", 2));
        assert_eq!(whole.uptime_s.get(), Ok(&864_000));
        for (nic, switch) in whole.nics.iter().zip(["leaf1", "leaf2"]) {
            let dcb = nic.dcb.get().unwrap();
            assert_eq!(dcb.pfc.as_ref().unwrap().enabled, [3].into());
            assert_eq!((&dcb.pfc, &dcb.ets), (&dcb.peer_pfc, &dcb.peer_ets));
            assert_eq!((dcb.apps.len(), &dcb.apps), (1, &dcb.peer_apps));
            let dcbx = dcb.dcbx.as_ref().unwrap();
            assert!(dcbx.host && !dcbx.by_firmware(), "{dcbx:?}");
            let buffers = dcb.buffers.as_ref().unwrap();
            assert_eq!(buffers.of_priority, [0, 0, 0, 1, 0, 0, 0, 0]);
            assert_eq!(buffers.sizes[1], 100_000);
            let rdma = nic.rdma.as_ref().unwrap().get().unwrap();
            assert_eq!((rdma.state.as_str(), rdma.kinds.len()), ("ACTIVE", 2));
            let neighbours = nic.neighbours.get().unwrap();
            assert_eq!(neighbours.len(), 1);
            assert_eq!(neighbours[0].name.as_deref(), Some(switch));
            assert_eq!(neighbours[0].negotiates, Some(true));
            assert_eq!(nic.spread.get().unwrap().places.len(), 4);
            assert_eq!(nic.steering.get().unwrap().send.len(), 4);
            assert!(!nic.pause.get().unwrap().send);
        }
        // What takes commands as well is nothing without what they do.
        let written = catalogue().filter(|broken| broken.is_written() && broken.leaves_hosts());
        for broken in written {
            let parts: Vec<&Written> = broken.written.iter().collect();
            assert_ne!(laid(&parts), whole, "{}", broken.name);
        }
    }
}
