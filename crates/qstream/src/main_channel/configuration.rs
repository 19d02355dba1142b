//! What the main channel says of a guest as a whole (`vmstate_configuration`).
//!
//! ```text
//!   configuration   7, machine: u32 length and name
//!   subsection      5, u8 length and name, version u32 = 1, then:
//!     configuration/capabilities        how many u32, of each u8 length and name
//!     configuration/uuid                16 bytes
//!     configuration/target-page-bits    u32
//! ```

use crate::limits::{CAPABILITIES_MOST, MACHINE_NAME_MOST};
use crate::opaque::Opaque;
use crate::reader::{Reader, Stop};

/// What matters of it.
#[derive(Debug, Clone, Copy)]
pub struct Configuration {
    pub page_bytes: u32,
    /// Memory that both hosts share stays out of the stream.
    pub ignores_shared: bool,
}

impl Configuration {
    pub const fn new(page_bytes: u32) -> Self {
        Self {
            page_bytes,
            ignores_shared: false,
        }
    }

    /// Reads how it begins: how many bytes follow that say nothing.
    pub fn begin(&self, reader: &mut Reader<'_>) -> Result<u64, Stop> {
        match reader.u32()? {
            bytes if bytes <= MACHINE_NAME_MOST => Ok(u64::from(bytes)),
            _ => Err(Opaque::Configuration.into()),
        }
    }

    /// Reads how a subsection begins: how many bytes follow that say nothing, and how many names of capabilities.
    pub fn subsection(&self, reader: &mut Reader<'_>) -> Result<(u64, u32), Stop> {
        let (name, version) = (reader.name()?, reader.u32()?);
        match (name, version) {
            (b"configuration/uuid", 1) => Ok((16, 0)),
            (b"configuration/target-page-bits", 1) => {
                let bits = reader.u32()?;
                if 1_u32.checked_shl(bits) == Some(self.page_bytes) {
                    Ok((0, 0))
                } else {
                    Err(Opaque::Configuration.into())
                }
            }
            (b"configuration/capabilities", 1) => match reader.u32()? {
                count if count <= CAPABILITIES_MOST => Ok((0, count)),
                _ => Err(Opaque::Configuration.into()),
            },
            _ => Err(Opaque::Configuration.into()),
        }
    }

    /// Reads the name of a capability.
    pub fn capability(&mut self, reader: &mut Reader<'_>) -> Result<(), Stop> {
        match reader.name()? {
            b"x-ignore-shared" => {
                self.ignores_shared = true;
                Ok(())
            }
            b"mapped-ram" => Err(Opaque::MappedRam.into()),
            _ => Err(Opaque::Capability.into()),
        }
    }
}
