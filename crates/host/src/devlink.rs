//! What an adapter, and not one of its interfaces, tells of itself: versions of its firmware, and its health (`include/uapi/linux/devlink.h`).
//!
//! Serial numbers are left out of what is kept.

use std::collections::BTreeMap;

use drover_tune::facts::Reporter;

use crate::limits::REPORTERS;
use crate::netlink::attributes::{NESTED, attribute, each, find, text_of, u8_of, u64_of};
use crate::netlink::{Answer, Generic};

const INFO_GET: u8 = 51;
const HEALTH_REPORTER_GET: u8 = 52;
const BUS_NAME: u16 = 1;
const DEV_NAME: u16 = 2;
const RUNNING: u16 = 101;
const VERSION_NAME: u16 = 103;
const VERSION_VALUE: u16 = 104;
const REPORTER: u16 = 114;
const REPORTER_NAME: u16 = 115;
const REPORTER_STATE: u16 = 116;
const REPORTER_ERRORS: u16 = 117;

/// A reporter that found an error and could not mend it (`DEVLINK_HEALTH_REPORTER_STATE_ERROR`).
const IN_ERROR: u8 = 1;

/// A socket to the kernel's family, and what all adapters tell of their health.
pub(crate) struct Devlink {
    family: Generic,
    health: Result<Vec<Vec<u8>>, String>,
}

impl Devlink {
    /// `None` where the kernel has no devlink.
    pub(crate) fn open() -> Option<Self> {
        let mut family = Generic::open("devlink")?;
        let health = family.dump(HEALTH_REPORTER_GET, REPORTERS);
        Some(Self { family, health })
    }

    /// Versions that run on the adapter in that PCI slot.
    pub(crate) fn versions(&mut self, slot: &str) -> Answer {
        let which = [
            attribute(BUS_NAME, b"pci\0"),
            attribute(DEV_NAME, format!("{slot}\0").as_bytes()),
        ];
        let answer = self.family.ask(INFO_GET, &which.concat())?;
        let running = each(&answer).filter(|(kind, _)| *kind == RUNNING);
        Ok(running
            .flat_map(|(kind, version)| attribute(kind | NESTED, version))
            .collect())
    }

    /// What its parts tell of their health.
    pub(crate) fn health(&self, slot: &str) -> Answer {
        let all = self.health.as_ref().map_err(Clone::clone)?;
        let is_its = |told: &&Vec<u8>| {
            text_of(told, BUS_NAME).as_deref() == Some("pci")
                && text_of(told, DEV_NAME).as_deref() == Some(slot)
        };
        let parts = all.iter().filter(is_its);
        let parts = parts.filter_map(|told| find(told, REPORTER));
        let kept: Vec<u8> = parts
            .flat_map(|part| attribute(REPORTER | NESTED, part))
            .collect();
        if kept.is_empty() {
            return Err("its driver does not tell".to_owned());
        }
        Ok(kept)
    }
}

/// Versions by their names, such as `fw.version`.
pub(crate) fn versions(told: &[u8]) -> BTreeMap<String, String> {
    let running = each(told).filter(|(kind, _)| *kind == RUNNING);
    running
        .filter_map(|(_, version)| {
            Some((
                text_of(version, VERSION_NAME)?,
                text_of(version, VERSION_VALUE)?,
            ))
        })
        .collect()
}

/// The version that stands for all: `devlink-info.rst` has these names for the whole of a firmware, and for the part of it that manages.
pub(crate) fn firmware(told: &[u8]) -> Result<String, &'static str> {
    let versions = versions(told);
    let wanted = ["fw.version", "fw", "fw.mgmt"];
    let found = wanted.iter().find_map(|name| versions.get(*name));
    found
        .cloned()
        .ok_or("its driver tells no version of its firmware by a name that is known")
}

/// Parts that tell of their health.
pub(crate) fn reporters(told: &[u8]) -> Vec<Reporter> {
    let parts = each(told).filter(|(kind, _)| *kind == REPORTER);
    parts
        .filter_map(|(_, part)| {
            Some(Reporter {
                name: text_of(part, REPORTER_NAME)?,
                in_error: u8_of(part, REPORTER_STATE)? == IN_ERROR,
                errors: u64_of(part, REPORTER_ERRORS).unwrap_or(0),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str, value: &str) -> Vec<u8> {
        let of = [
            attribute(VERSION_NAME, format!("{name}\0").as_bytes()),
            attribute(VERSION_VALUE, format!("{value}\0").as_bytes()),
        ];
        attribute(RUNNING | NESTED, &of.concat())
    }

    #[test]
    fn the_version_of_the_whole_firmware_is_preferred() {
        let told = [
            version("fw.mgmt", "7.0"),
            version("fw.psid", "MT_0000000080"),
            version("fw.version", "16.35.2000"),
        ];
        assert_eq!(firmware(&told.concat()).unwrap(), "16.35.2000");
        assert_eq!(firmware(&told[0]).unwrap(), "7.0");
        assert!(firmware(&told[1]).is_err() && firmware(&[]).is_err());
    }

    #[test]
    fn parts_tell_of_their_health() {
        let part = |name: &str, state: u8, errors: u64| {
            let of = [
                attribute(REPORTER_NAME, format!("{name}\0").as_bytes()),
                attribute(REPORTER_STATE, &[state]),
                attribute(REPORTER_ERRORS, &errors.to_ne_bytes()),
            ];
            attribute(REPORTER | NESTED, &of.concat())
        };
        let told = [
            part("tx", 0, 3),
            part("fw_fatal", 1, 1),
            attribute(7, b"odd"),
        ];
        let told = reporters(&told.concat());
        let told: Vec<_> = told
            .iter()
            .map(|part| (part.name.as_str(), part.in_error, part.errors))
            .collect();
        assert_eq!(told, [("tx", false, 3), ("fw_fatal", true, 1)]);
    }

    #[test]
    fn this_kernel_answers_or_has_no_devlink() {
        match Devlink::open() {
            None => println!("skipped, because the kernel has no devlink"),
            Some(mut devlink) => {
                assert!(devlink.versions("ffff:ff:1f.7").is_err());
                assert!(devlink.health("ffff:ff:1f.7").is_err());
            }
        }
    }
}
