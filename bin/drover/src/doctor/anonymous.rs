//! What was read of a host, without its name, its addresses, and what tells its hardware's.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use drover_host::{Answered, BOOT_ID, Seen, Told};
use drover_tune::tells_hardware;
use drover_types::IpNetwork;

use crate::failure::Failure;

/// Instead of a host's name.
pub const ANONYMOUS: &str = "anonymous";

/// What addresses are digested with: who does not have it cannot try all addresses.
pub struct Key([u8; blake3::KEY_LEN]);

impl Key {
    /// That in the file, which is made if it is not there; without a file one that nobody has afterwards.
    pub fn of(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else {
            return Self::made().map_err(|error| Failure::error(format!("no random key: {error}")));
        };
        let failed = |why: String| Failure::error(format!("the key in {}: {why}", file.display()));
        match fs::File::open(file) {
            Ok(open) => Self::read(open).map_err(failed),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::write(file).map_err(|error| failed(error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn made() -> io::Result<Self> {
        let mut key = [0; blake3::KEY_LEN];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self(key))
    }

    fn read(file: fs::File) -> Result<Self, String> {
        let mut text = String::new();
        let read = file.take(1024).read_to_string(&mut text);
        read.map_err(|error| error.to_string())?;
        let key = blake3::Hash::from_hex(text.trim());
        let key = key.map_err(|_| "it is not 64 hexadecimal digits: name the file of another key, or one that is not there yet"
                .to_owned())?;
        Ok(Self(*key.as_bytes()))
    }

    fn write(file: &Path) -> io::Result<Self> {
        let key = Self::made()?;
        let mut options = OpenOptions::new();
        let mut open = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)?;
        writeln!(open, "{}", blake3::Hash::from_bytes(key.0))?;
        Ok(key)
    }

    fn digest(&self, of: IpNetwork) -> u128 {
        let digest = blake3::keyed_hash(&self.0, of.to_string().as_bytes());
        let (first, _) = digest.as_bytes().split_at(16);
        first
            .iter()
            .fold(0, |made, byte| made << 8 | u128::from(*byte))
    }

    /// An address that stands for its own, in a network that is known by its digest alone: no two of one network become the same. None
    /// for one in 65,536, whose digest makes a network that every link has by itself.
    fn elsewhere(&self, address: IpNetwork) -> Option<IpNetwork> {
        let digest = self.digest(address.network());
        let made = match address.address() {
            IpAddr::V4(own) => IpAddr::V4((own.to_bits() ^ digest as u32).into()),
            IpAddr::V6(own) => IpAddr::V6((own.to_bits() ^ digest).into()),
        };
        IpNetwork::new(made, address.prefix()).filter(|made| !made.is_link_local())
    }
}

/// Takes the host's name and its addresses away. Two that are in one network stay in one, on every host that is captured with this key.
pub fn make(key: &Key, seen: &mut Seen, told: &mut Told) {
    ANONYMOUS.clone_into(&mut told.host);
    for nic in &mut told.nics {
        let addresses = std::mem::take(&mut nic.interface.addresses).into_iter();
        nic.interface.addresses = addresses
            .filter(|own| !own.is_link_local())
            .filter_map(|own| key.elsewhere(own))
            .collect();
        // Switches say who they are.
        nic.neighbours = Some(Answered::Nothing(
            "what switches say was taken away with the host's name".to_owned(),
        ));
    }
    told.nics.retain(|nic| !tells_hardware(&nic.interface.name));
    seen.files
        .retain(|path, _| !tells_hardware(path) && path != BOOT_ID);
    seen.folders.retain(|path, _| !tells_hardware(path));
    for names in seen.folders.values_mut() {
        names.retain(|name| !tells_hardware(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; blake3::KEY_LEN]);

    fn made(address: &str) -> IpNetwork {
        KEY.elsewhere(address.parse().unwrap()).unwrap()
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

    #[test]
    fn another_key_makes_other_addresses() {
        let address: IpNetwork = "10.0.1.1/24".parse().unwrap();
        let other = Key([8; blake3::KEY_LEN]).elsewhere(address);
        assert_ne!(other, KEY.elsewhere(address));
    }

    #[test]
    fn a_key_in_a_file_is_made_once_and_nobody_else_reads_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        let made = Key::of(Some(&file)).unwrap();
        assert_eq!(Key::of(Some(&file)).unwrap().0, made.0);
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::write(&file, "none").unwrap();
        assert!(Key::of(Some(&file)).is_err());
    }

    #[test]
    fn what_switches_say_of_themselves_is_taken_away() {
        let told = r#"{ "host": "db7", "irqbalance": false, "nics": [{
            "interface": { "name": "eth0", "addresses": ["10.0.1.1/24"], "speed": null, "mtu": 1500, "up": true, "loopback": false,
                "tx_queues": 1, "rx_queues": 1, "rdma": null },
            "has_folder": false, "enabled": true, "ethtool": {}, "neighbours": { "attributes": "bGVhZjE=" } }] }"#;
        let mut told: Told = serde_json::from_str(told).unwrap();
        make(&KEY, &mut Seen::default(), &mut told);
        let text = serde_json::to_string(&told).unwrap();
        for word in ["db7", "10.0.1.1", "bGVhZjE="] {
            assert!(!text.contains(word), "{text}");
        }
    }
}
