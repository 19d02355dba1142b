//! What a driver says of itself: its version, and that of its adapter's firmware (`ETHTOOL_GDRVINFO`). ethtool's netlink has no message
//! for it (`Documentation/networking/ethtool-netlink.rst`), so it is asked by the old way; every driver answers, also on kernels whose devlink
//! does not know it.
//!
//! ```text
//! ifreq:    name [16], pointer to the following
//! drvinfo:  command u32, driver [32], version [32], firmware [32], bus [32], expansion ROM [32], 12, five u32   196 bytes
//! ```
//!
//! # Safety
//! The one call of this crate that is not safe, [`ask`]. The kernel reads the command, and writes as many bytes as `struct ethtool_drvinfo`
//! has (`include/uapi/linux/ethtool.h`, of its stable ABI): the buffer has these, is this function's alone, and outlives the call.

use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::netlink::Answer;

const SIOCETHTOOL: u32 = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 3;

/// Of all, and of each text.
const LENGTH: usize = 196;
const TEXT: usize = 32;

/// Where the first text begins.
const DRIVER: usize = 4;

/// Asks about the interface of that name, in this thread's network namespace.
#[expect(
    unsafe_code,
    reason = "there is no other way to ask, and no crate that is kept asks it"
)]
pub(crate) fn ask(nic: &str) -> Answer {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
        .map_err(|error| format!("the kernel gives no socket: {error}"))?;
    let mut told = [0_u8; LENGTH];
    told[..DRIVER].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: told.as_mut_ptr().cast(),
        },
    };
    // One byte is left for the end.
    if nic.len() >= request.ifr_name.len() {
        return Err(format!("{nic:?} is no name of an interface"));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(nic.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: see the module.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL.into(), &raw mut request) };
    match code {
        0 => Ok(told.to_vec()),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// The driver's own version: that of the kernel, where it came with it.
pub(crate) fn driver(told: &[u8]) -> Result<String, &'static str> {
    text(told, 1).ok_or("its driver tells no version of its own")
}

/// The version of its adapter's firmware.
pub(crate) fn firmware(told: &[u8]) -> Result<String, &'static str> {
    text(told, 2)
        .filter(|version| !version.eq_ignore_ascii_case("n/a"))
        .ok_or("its driver tells no version of its firmware")
}

/// One of five.
fn text(told: &[u8], which: usize) -> Option<String> {
    let at = DRIVER + which * TEXT;
    let bytes = told.get(at..at + TEXT)?;
    let text = bytes.split(|byte| *byte == 0).next()?;
    let text = str::from_utf8(text).ok()?.trim();
    let is_text = !text.is_empty() && !text.contains(char::is_control);
    is_text.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drvinfo(texts: [&str; 3]) -> Vec<u8> {
        let mut told = vec![0; LENGTH];
        for (which, text) in texts.iter().enumerate() {
            let at = DRIVER + which * TEXT;
            told[at..at + text.len()].copy_from_slice(text.as_bytes());
        }
        told
    }

    #[test]
    fn versions_are_read_from_their_places_and_what_says_nothing_is_not_known() {
        // As others have shown of theirs.
        let told = drvinfo(["i40e", "5.15.0-39-generic", "8.15 0x800095c4 0.0.0"]);
        assert_eq!(driver(&told).unwrap(), "5.15.0-39-generic");
        assert_eq!(firmware(&told).unwrap(), "8.15 0x800095c4 0.0.0");
        let full = "x".repeat(TEXT);
        assert_eq!(firmware(&drvinfo(["", "", &full])).unwrap(), full);
        for nothing in ["", " ", "N/A", "n/a", "1\n2"] {
            assert!(
                firmware(&drvinfo(["veth", "1.0", nothing])).is_err(),
                "{nothing:?}"
            );
        }
        // Captured by somebody else, it may be anything.
        for length in 0..LENGTH {
            let cut = &told[..length];
            assert!(firmware(cut).is_err() || length >= DRIVER + 3 * TEXT);
        }
        assert!(firmware(&[0xff; LENGTH]).is_err());
    }

    #[test]
    fn this_kernel_answers_of_what_it_has_and_says_why_not_of_what_it_has_not() {
        // Loopback has no driver, and the kernel says so.
        assert!(ask("lo").is_err());
        assert!(ask("none-such").unwrap_err().contains("No such device"));
        assert!(ask("a-name-that-is-too-long").is_err());
    }
}
