//! A captured host: the files that were read, as below `/`, and `told.json` with what the kernel told by netlink.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::path::Path;

use drover_host::{Seen, Told, Tree, facts};
use drover_tune::facts::Host;
use drover_types::IpNetwork;

use crate::failure::Failure;

const TOLD: &str = "told.json";

/// Some 2 KiB of each of 8192 interfaces.
const TOLD_MOST: u64 = 16 << 20;

/// Instead of a host's name.
const ANONYMOUS: &str = "anonymous";

/// Writes it; how many files that were.
pub fn write(directory: &Path, seen: &Seen, told: &Told) -> Result<usize, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::error(format!("cannot write {}: {error}", path.display()))
    };
    fs::create_dir(directory).map_err(|error| failed(directory, error))?;
    for (folder, names) in &seen.folders {
        // Entries count by their names: those that were not read are empty.
        for entry in names.iter().map(|name| format!("{folder}/{name}")) {
            let path = directory.join(&entry);
            let made = if seen.is_folder(&entry) {
                fs::create_dir_all(&path)
            } else {
                put(&path, "")
            };
            made.map_err(|error| failed(&path, error))?;
        }
    }
    for (file, text) in &seen.files {
        let path = directory.join(file);
        put(&path, text).map_err(|error| failed(&path, error))?;
    }
    let path = directory.join(TOLD);
    let told =
        serde_json::to_string_pretty(told).map_err(|error| Failure::error(error.to_string()))?;
    put(&path, &told).map_err(|error| failed(&path, error))?;
    Ok(seen.files.len() + 1)
}

fn put(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)
}

/// The host that was captured there.
pub fn read(directory: &Path) -> Result<Host, Failure> {
    let path = directory.join(TOLD);
    let failed = |why: String| {
        Failure::error(format!(
            "{} is no captured host: {}: {why}",
            directory.display(),
            path.display()
        ))
    };
    let mut told = String::new();
    let opened =
        fs::File::open(&path).and_then(|file| file.take(TOLD_MOST).read_to_string(&mut told));
    opened.map_err(|error| failed(error.to_string()))?;
    let mut told: Told = serde_json::from_str(&told).map_err(|error| failed(error.to_string()))?;
    told.check().map_err(|error| failed(error.to_string()))?;
    if told.host == ANONYMOUS {
        let name = directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        told.host = name.unwrap_or_else(|| ANONYMOUS.to_owned());
    }
    Ok(facts(&Tree::captured(directory), &told))
}

/// Takes the host's name and its addresses away. Two that are in one network stay in one, on every host that is captured so.
pub fn make_anonymous(seen: &mut Seen, told: &mut Told) {
    told.host = ANONYMOUS.to_owned();
    for nic in &mut told.nics {
        let addresses = std::mem::take(&mut nic.interface.addresses).into_iter();
        nic.interface.addresses = addresses
            .filter(|own| !own.is_link_local())
            .filter_map(elsewhere)
            .collect();
    }
    // A name that is made of the hardware's address tells it, and so do the paths with it.
    told.nics
        .retain(|nic| !nic.interface.name.starts_with("enx"));
    seen.files.retain(|path, _| !path.contains("/enx"));
    seen.folders.retain(|path, _| !path.contains("/enx"));
    for names in seen.folders.values_mut() {
        names.retain(|name| !name.contains("enx"));
    }
}

/// An address that stands for its own: as long a network, and a host in it, both known by their digests alone. None for one in 65,536, whose
/// digests make an address that every link has by itself.
fn elsewhere(address: IpNetwork) -> Option<IpNetwork> {
    let digest = |of: IpNetwork| {
        let mut hasher = DefaultHasher::new();
        of.hash(&mut hasher);
        u128::from(hasher.finish()) << 64 | u128::from(hasher.finish())
    };
    let (network, host) = (digest(address.network()), digest(address));
    let prefix = u32::from(address.prefix());
    let made = match address.address() {
        IpAddr::V4(_) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            IpAddr::V4((network as u32 & mask | host as u32 & !mask).into())
        }
        IpAddr::V6(_) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            IpAddr::V6((network & mask | host & !mask).into())
        }
    };
    IpNetwork::new(made, address.prefix()).filter(|made| !made.is_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(address: &str) -> IpNetwork {
        elsewhere(address.parse().unwrap()).unwrap()
    }

    #[test]
    fn addresses_of_one_network_stay_in_one_and_others_apart_whatever_its_length() {
        for [one, same, other] in [
            ["10.0.1.1/24", "10.0.1.2/24", "10.0.2.1/24"],
            ["10.1.0.1/16", "10.1.9.1/16", "10.2.0.1/16"],
            ["10.0.0.1/28", "10.0.0.2/28", "10.0.0.17/28"],
            ["fd00:1::1/64", "fd00:1::2/64", "fd00:2::1/64"],
        ] {
            assert_eq!(made(one).network(), made(same).network(), "{one}");
            assert_ne!(made(one), made(same), "{one}");
            assert_ne!(made(one).network(), made(other).network(), "{one}");
            assert_ne!(
                made(one).address(),
                one.parse::<IpNetwork>().unwrap().address()
            );
        }
    }
}
