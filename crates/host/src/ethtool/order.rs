//! Changes of an interface. Numbers are those of `include/uapi/linux/ethtool_netlink.h`.

use std::io;

use crate::netlink::attributes::{attribute, bitset};

/// A request that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(super) command: u8,
    pub(super) attributes: Vec<u8>,
}

/// Why something was not changed.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The kernel is not to be reached.
    #[error("the kernel does not answer")]
    Socket {
        /// Why.
        source: io::Error,
    },
    /// It does not do it.
    #[error("the kernel or the driver refuses")]
    Refused {
        /// Why.
        source: io::Error,
    },
    /// It answers something else.
    #[error("the kernel's answer is not as known")]
    Strange,
}

const fn u32_attribute(kind: u16, value: u32) -> (u16, [u8; 4]) {
    (kind, value.to_ne_bytes())
}

impl Order {
    fn number(command: u8, kind: u16, value: u32) -> Self {
        let (kind, value) = u32_attribute(kind, value);
        Self {
            command,
            attributes: attribute(kind, &value),
        }
    }

    /// `CHANNELS_SET`: queues for both directions.
    pub(crate) fn combined_channels(count: u32) -> Self {
        Self::number(18, 9, count)
    }

    /// `RINGS_SET`: places for packets that arrive.
    pub(crate) fn receive_ring(places: u32) -> Self {
        Self::number(16, 6, places)
    }

    /// `COALESCE_SET`: interrupts follow what arrives.
    pub(crate) fn adaptive_receive(on: bool) -> Self {
        Self {
            command: 20,
            attributes: attribute(11, &[u8::from(on)]),
        }
    }

    /// `FEATURES_SET`: one of them, by the kernel's name.
    pub(crate) fn feature(name: &str, on: bool) -> Self {
        Self {
            command: 12,
            attributes: bitset(3, true, &[(name, on)]),
        }
    }

    /// `LINKMODES_SET`: both ends agree by themselves; these modes are offered or not, and others as they are.
    pub(crate) fn negotiates(modes: &[(String, bool)]) -> Self {
        let mut attributes = attribute(2, &[1]);
        if !modes.is_empty() {
            let named: Vec<(&str, bool)> = modes
                .iter()
                .map(|(mode, is_offered)| (mode.as_str(), *is_offered))
                .collect();
            attributes.extend(bitset(3, true, &named));
        }
        Self {
            command: 5,
            attributes,
        }
    }

    /// `LINKMODES_SET`: a rate in Mbit/s by hand; or, where it `agrees`, the only one that is offered: the kernel finds its modes.
    pub(crate) fn rate(agrees: bool, mbit: u32, full: bool) -> Self {
        let (kind, value) = u32_attribute(5, mbit);
        let parts = [
            attribute(2, &[u8::from(agrees)]),
            attribute(kind, &value),
            attribute(6, &[u8::from(full)]),
        ];
        Self {
            command: 5,
            attributes: parts.concat(),
        }
    }

    /// `PAUSE_SET`: whether ends agree on pause frames, which is left as it is unless it is said, whether these are obeyed, and sent.
    pub(crate) fn pause(agreed: Option<bool>, receive: bool, send: bool) -> Self {
        let agreed = agreed.map(|on| attribute(2, &[u8::from(on)]));
        let parts = [
            agreed.unwrap_or_default(),
            attribute(3, &[u8::from(receive)]),
            attribute(4, &[u8::from(send)]),
        ];
        Self {
            command: 22,
            attributes: parts.concat(),
        }
    }

    /// `FEC_SET`: chosen by the hardware, or one of these modes.
    pub(crate) fn fec(automatic: bool, modes: &[String]) -> Self {
        let listed: Vec<(&str, bool)> = modes.iter().map(|mode| (mode.as_str(), true)).collect();
        let mut attributes = attribute(3, &[u8::from(automatic)]);
        if !automatic {
            attributes.extend(bitset(2, false, &listed));
        }
        Self {
            command: 30,
            attributes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::attributes::{NESTED, bits, u8_of, u32_of};

    #[test]
    fn an_order_says_what_is_to_be_as_the_kernel_reads_it() {
        assert_eq!(u32_of(&Order::combined_channels(4).attributes, 9), Some(4));
        assert_eq!(u32_of(&Order::receive_ring(1024).attributes, 6), Some(1024));
        let off = Order::feature("rx-gro", false);
        assert_eq!(bits(&off.attributes, 3), [("rx-gro".to_owned(), false)]);
        let rate = Order::rate(false, 10_000, true).attributes;
        assert_eq!(
            (u8_of(&rate, 2), u32_of(&rate, 5), u8_of(&rate, 6)),
            (Some(0), Some(10_000), Some(1))
        );
        let fec = Order::fec(false, &["RS".to_owned()]).attributes;
        assert_eq!(bits(&fec, 2), [("RS".to_owned(), true)]);
        assert_eq!(u8_of(&fec, 3), Some(0));
        let agreed = Order::pause(Some(false), false, true).attributes;
        assert_eq!(u8_of(&agreed, 2), Some(0));
        let pause = Order::pause(None, false, true);
        assert_eq!(u8_of(&pause.attributes, 2), None);
        assert_eq!(
            (
                pause.command,
                u8_of(&pause.attributes, 3),
                u8_of(&pause.attributes, 4)
            ),
            (22, Some(0), Some(1))
        );
        // Only nested attributes say so of themselves.
        let all = Order::negotiates(&[]).attributes;
        assert_eq!(all[3] & (NESTED >> 8) as u8, 0);
        assert_eq!((all.len(), u8_of(&all, 2)), (8, Some(1)));
        let modes = [
            ("1000baseT/Full".to_owned(), true),
            ("100baseT/Full".to_owned(), false),
        ];
        let some = Order::negotiates(&modes).attributes;
        assert_eq!(u8_of(&some, 2), Some(1));
        assert_eq!(bits(&some, 3), modes);
        assert_eq!(u8_of(&Order::rate(true, 1000, true).attributes, 2), Some(1));
    }
}
