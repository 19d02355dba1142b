//! The memory of a cable or module (`MODULE_EEPROM_GET`): 128 bytes at a time, of two pages at most.
//!
//! ```text
//! byte 0: what it is (SFF-8024, table 4-1)      SFP: SFF-8472, all in the first 128 bytes
//!                                               QSFP: SFF-8636, and CMIS: identity in the second 128 bytes
//! ```
//! Serial numbers are cut off before anything is kept: nobody needs them.

mod codes;
mod qsfp;
mod sfp;

use drover_tune::facts::Module;

use crate::netlink::attributes::{attribute, find};

/// Bytes of one answer.
const PAGE: u32 = 128;

/// Address of the memory on the module's bus.
const ADDRESS: u8 = 0x50;

const OFFSET: u16 = 2;
const LENGTH: u16 = 3;
const PAGE_NUMBER: u16 = 4;
const I2C_ADDRESS: u16 = 6;
const DATA: u16 = 7;

/// What is asked: the first half of the memory, or the second one with its first page.
pub(super) fn asked(upper: bool) -> Vec<u8> {
    let offset = if upper { PAGE } else { 0 };
    let parts = [
        attribute(OFFSET, &offset.to_ne_bytes()),
        attribute(LENGTH, &PAGE.to_ne_bytes()),
        attribute(PAGE_NUMBER, &[0]),
        attribute(I2C_ADDRESS, &[ADDRESS]),
    ];
    parts.concat()
}

/// What is kept of an answer: all before the serial number.
pub(super) fn kept(upper: bool, answer: &[u8]) -> Vec<u8> {
    let data = find(answer, DATA).unwrap_or_default();
    let bytes = match (upper, data.first()) {
        // The whole first half of a QSFP is about its state.
        (false, Some(id)) if !sfp::is(*id) => data.len(),
        (true, Some(id)) if qsfp::is_managed(*id) => 38,
        _ => 68,
    };
    attribute(DATA, &data[..bytes.min(data.len())])
}

/// Whether its identity is in the second half.
pub(super) fn has_upper(lower: &[u8]) -> bool {
    find(lower, DATA)
        .and_then(|data| data.first())
        .is_some_and(|id| qsfp::is(*id) || qsfp::is_managed(*id))
}

/// Of both halves, as they are kept.
pub(crate) fn module(lower: &[u8], upper: Option<&[u8]>) -> Result<Module, String> {
    let lower = find(lower, DATA).unwrap_or_default();
    let id = *lower.first().ok_or("its driver tells nothing of it")?;
    if sfp::is(id) {
        return Ok(sfp::module(lower));
    }
    let upper = upper.and_then(|answer| find(answer, DATA));
    if qsfp::is(id) || qsfp::is_managed(id) {
        let upper = upper.ok_or("its driver tells only the first half of its memory")?;
        return Ok(if qsfp::is_managed(id) {
            qsfp::managed(lower, upper)
        } else {
            qsfp::module(upper)
        });
    }
    Err(format!(
        "its module is of a kind that is not known: {id:#04x} (SFF-8024)"
    ))
}

/// Text in the memory: letters, with spaces behind them.
fn text(bytes: Option<&[u8]>) -> String {
    let letters = bytes.unwrap_or_default().iter();
    let shown = letters.map(|byte| char::from(*byte));
    let shown: String = shown
        .filter(|letter| letter.is_ascii_graphic() || *letter == ' ')
        .collect();
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests;
