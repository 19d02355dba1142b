//! What a host's libvirt has for domains, asked for one thing at a time.

use std::ffi::{CString, c_int};
use std::path::PathBuf;

use crate::connection::Connection;
use crate::description::{Tpm, gives};
use crate::error::{CallError, Refusal, excerpt};
use crate::raw;

/// What a host's libvirt is asked whether it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// A hypervisor that can be started with this machine.
    Machine(Machine),
    /// One that can give a domain this processor, as the XML of a domain that runs tells it.
    Processor {
        /// The machine that it is of.
        machine: Machine,
        /// The element `cpu`.
        xml: String,
    },
    /// One that can give a domain this emulated TPM.
    Tpm(Machine, Tpm),
    /// A network, active.
    Network(String),
    /// A storage pool, active, and a volume in it.
    Volume {
        /// The pool.
        pool: String,
        /// The volume.
        volume: String,
    },
    /// A secret.
    Secret(Secret),
}

/// A machine that a hypervisor is started with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine {
    /// Its type, such as `pc-q35-10.0`.
    pub name: String,
    /// The hypervisor's program; libvirt's own choice where there is none.
    pub emulator: Option<PathBuf>,
    /// Its architecture, such as `x86_64`; libvirt's own choice where there is none.
    pub arch: Option<String>,
    /// The kind of domain: `kvm`, or `qemu` where the processor is emulated.
    pub kind: String,
}

/// A secret of libvirt's, by what a domain names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Secret {
    /// By its id.
    Id(String),
    /// By what it is for.
    Of {
        /// The kind of that, such as `ceph`.
        kind: String,
        /// The name of it.
        usage: String,
    },
}

/// Whether it has that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Has {
    /// Yes.
    It,
    /// No, and how that shows: libvirt's own words, mostly.
    Not(String),
    /// It is not asked for, and why.
    NotKnown(String),
}

/// Errors by which libvirt says that something is not there: `virErrorNumber` of its `virterror.h`. All others leave it open.
mod code {
    use std::ffi::c_int;

    /// What the machine or the hypervisor is not (`virQEMUCapsCacheLookupDefault`).
    pub const INVALID_ARG: c_int = 8;
    pub const NO_NETWORK: c_int = 43;
    pub const NO_STORAGE_POOL: c_int = 49;
    pub const NO_STORAGE_VOL: c_int = 50;
    pub const NO_SECRET: c_int = 66;
    pub const CPU_INCOMPATIBLE: c_int = 91;
}

/// Of what is there and cannot be used.
const NOT_ACTIVE: &str = "it is there, and not active";

impl Connection {
    /// Whether this host's libvirt has something.
    ///
    /// # Errors
    /// That is not known: libvirt refuses for another reason than that it is not there, gives no answer, or the connection is lost.
    pub async fn has(&self, wanted: Wanted) -> Result<Has, CallError> {
        let what = wanted.what();
        let asked = Asked::of(&wanted).map_err(|text| CallError::Text { what, text })?;
        let ask = move |connection: &raw::Connection| has(connection, &asked);
        self.call(what, ask).await
    }
}

impl Wanted {
    fn what(&self) -> &'static str {
        match self {
            Self::Machine(_) => "tell whether it has a machine type",
            Self::Processor { .. } => "compare a processor",
            Self::Tpm(..) => "tell which TPMs it can give",
            Self::Network(_) => "look for a network",
            Self::Volume { .. } => "look for a volume",
            Self::Secret(_) => "look for a secret",
        }
    }
}

/// The same in C's texts.
enum Asked {
    Machine(Started),
    Processor(Started, CString),
    Tpm(Started, Tpm),
    Network(CString),
    Volume(CString, CString),
    SecretOfId(CString),
    SecretOf(c_int, CString),
    /// A secret of a kind that this program does not know.
    SecretOfOther(String),
}

struct Started {
    emulator: Option<CString>,
    arch: Option<CString>,
    machine: CString,
    kind: CString,
}

impl Started {
    /// # Errors
    /// The text with a zero byte.
    fn of(machine: &Machine) -> Result<Self, String> {
        let emulator = machine.emulator.as_ref();
        let emulator = emulator.map(|path| text(&path.display().to_string()));
        Ok(Self {
            emulator: emulator.transpose()?,
            arch: machine.arch.as_deref().map(text).transpose()?,
            machine: text(&machine.name)?,
            kind: text(&machine.kind)?,
        })
    }

    fn raw(&self) -> raw::Started<'_> {
        raw::Started {
            emulator: self.emulator.as_deref(),
            arch: self.arch.as_deref(),
            machine: &self.machine,
            kind: &self.kind,
        }
    }
}

impl Asked {
    /// # Errors
    /// The text with a zero byte.
    fn of(wanted: &Wanted) -> Result<Self, String> {
        Ok(match wanted {
            Wanted::Machine(machine) => Self::Machine(Started::of(machine)?),
            Wanted::Processor { machine, xml } => {
                Self::Processor(Started::of(machine)?, text(xml)?)
            }
            Wanted::Tpm(machine, tpm) => Self::Tpm(Started::of(machine)?, tpm.clone()),
            Wanted::Network(name) => Self::Network(text(name)?),
            Wanted::Volume { pool, volume } => Self::Volume(text(pool)?, text(volume)?),
            Wanted::Secret(Secret::Id(id)) => Self::SecretOfId(text(id)?),
            Wanted::Secret(Secret::Of { kind, usage }) => match usage_type(kind) {
                Some(number) => Self::SecretOf(number, text(usage)?),
                None => Self::SecretOfOther(excerpt(kind)),
            },
        })
    }
}

fn text(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| excerpt(text))
}

/// A `virSecretUsageType` of libvirt's `libvirt-secret.h`, by the word for it in XML (`virsecret.c`).
fn usage_type(kind: &str) -> Option<c_int> {
    match kind {
        "volume" => Some(1),
        "ceph" => Some(2),
        "iscsi" => Some(3),
        "tls" => Some(4),
        "vtpm" => Some(5),
        _ => None,
    }
}

fn has(connection: &raw::Connection, asked: &Asked) -> Result<Has, Refusal> {
    let active = |is_active: bool| match is_active {
        true => Has::It,
        false => Has::Not(NOT_ACTIVE.to_owned()),
    };
    let it = |()| Has::It;
    match asked {
        Asked::Machine(started) => {
            let told = connection.domain_capabilities(&started.raw());
            unless(told.map(|_| Has::It), &[code::INVALID_ARG])
        }
        Asked::Tpm(started, tpm) => {
            let told = connection.domain_capabilities(&started.raw())?;
            Ok(gives(&told, tpm).unwrap_or_else(|why| Has::NotKnown(why.to_string())))
        }
        Asked::Processor(started, xml) => {
            let can = connection.can_give(&started.raw(), xml);
            let can = can.map(|can| match can {
                true => Has::It,
                false => Has::Not("it can give domains no such processor".to_owned()),
            });
            unless(can, &[code::CPU_INCOMPATIBLE])
        }
        Asked::Network(name) => {
            let is_active = connection.is_network_active(name).map(active);
            unless(is_active, &[code::NO_NETWORK])
        }
        Asked::Volume(pool, volume) => {
            let is_active = connection.is_pool_active(pool).map(active);
            match unless(is_active, &[code::NO_STORAGE_POOL])? {
                Has::It => {
                    let found = connection.find_volume(pool, volume).map(it);
                    unless(found, &[code::NO_STORAGE_POOL, code::NO_STORAGE_VOL])
                }
                other => Ok(other),
            }
        }
        Asked::SecretOfId(id) => unless(connection.find_secret(id).map(it), &[code::NO_SECRET]),
        Asked::SecretOf(kind, usage) => {
            let found = connection.find_secret_of(*kind, usage).map(it);
            unless(found, &[code::NO_SECRET])
        }
        Asked::SecretOfOther(kind) => Ok(Has::NotKnown(format!(
            "secrets of kind {kind:?} are not looked for"
        ))),
    }
}

/// An error with one of these codes says that it is not there.
fn unless(answer: Result<Has, Refusal>, codes: &[c_int]) -> Result<Has, Refusal> {
    match answer {
        Err(refusal) if codes.contains(&refusal.code) => Ok(Has::Not(refusal.words)),
        answer => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_libvirt_says_is_not_there_is_not_there() {
        let refused = |code| {
            let words = "no network with matching name 'lan'".to_owned();
            Err(Refusal {
                words,
                domain: 19,
                code,
            })
        };
        let missing = unless(refused(code::NO_NETWORK), &[code::NO_NETWORK]);
        assert!(matches!(missing, Ok(Has::Not(why)) if why.contains("'lan'")));
        assert!(unless(refused(3), &[code::NO_NETWORK]).is_err());
        assert_eq!(unless(Ok(Has::It), &[]), Ok(Has::It));
    }

    #[test]
    fn a_text_that_c_cannot_have_is_not_asked_for() {
        let network = Wanted::Network("a\0b".to_owned());
        assert!(Asked::of(&network).is_err());
        let of = |kind: &str| {
            let (kind, usage) = (kind.to_owned(), "web".to_owned());
            Asked::of(&Wanted::Secret(Secret::Of { kind, usage }))
        };
        assert!(matches!(of("ceph"), Ok(Asked::SecretOf(2, _))));
        assert!(matches!(of("new"), Ok(Asked::SecretOfOther(_))));
    }
}
