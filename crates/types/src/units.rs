//! Sizes and rates. Link rates are bits per second, transfers bytes per second, sizes bytes.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Text that is no size or rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}: write {example}")]
pub struct InvalidQuantity {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// Splits `12.5gbit` in its number and its lower-case unit.
fn split_unit(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number
        .is_finite()
        .then(|| (number, text[end..].trim().to_ascii_lowercase()))
}

/// `number * factor` as a whole number, if it fits.
fn scaled(number: f64, factor: u64) -> Option<u64> {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss
    )]
    let value = {
        let product = (number * factor as f64).round();
        (0.0..u64::MAX as f64)
            .contains(&product)
            .then_some(product as u64)
    };
    value
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $example:literal, $factor:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl FromStr for $name {
            type Err = InvalidQuantity;
            fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
                split_unit(text)
                    .and_then(|(number, unit)| scaled(number, $factor(&unit)?))
                    .map(Self)
                    .ok_or_else(|| InvalidQuantity {
                        text: text.chars().take(40).collect(),
                        what: $what,
                        example: $example,
                    })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct NumberOrText;
                impl de::Visitor<'_> for NumberOrText {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, concat!("a ", $what, ": {}"), $example)
                    }
                    fn visit_u64<E: de::Error>(self, value: u64) -> Result<$name, E> {
                        Ok($name(value))
                    }
                    fn visit_i64<E: de::Error>(self, value: i64) -> Result<$name, E> {
                        u64::try_from(value).map($name).map_err(E::custom)
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                deserializer.deserialize_any(NumberOrText)
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
                values.fold(Self(0), Add::add)
            }
        }
    };
}

quantity! {
    /// A size in bytes, shown in binary units (`1.5 GiB`).
    Bytes, "size", "1GiB, 512MiB or a number of bytes", byte_factor
}
quantity! {
    /// A link rate in bits per second, decimal units (`25 Gbit/s`).
    BitRate, "link rate", "1gbit, 200mbit or a number of bits per second", bit_factor
}
quantity! {
    /// A transfer rate in bytes per second, shown in binary units (`119.2 MiB/s`).
    ByteRate, "transfer rate", "100MiB/s or a number of bytes per second", byte_rate_factor
}

fn byte_factor(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    })
}

fn byte_rate_factor(unit: &str) -> Option<u64> {
    byte_factor(unit.strip_suffix("/s").unwrap_or(unit))
}

fn bit_factor(unit: &str) -> Option<u64> {
    Some(match unit.strip_suffix("/s").unwrap_or(unit) {
        "" | "bit" => 1,
        "kbit" => 1_000,
        "mbit" => 1_000_000,
        "gbit" => 1_000_000_000,
        _ => return None,
    })
}

#[allow(clippy::cast_precision_loss)]
fn show(f: &mut fmt::Formatter<'_>, value: u64, base: f64, units: &[&str]) -> fmt::Result {
    let mut shown = value as f64;
    let mut unit = 0;
    while shown >= base && unit + 1 < units.len() {
        shown /= base;
        unit += 1;
    }
    let digits = usize::from(shown.fract() >= 0.05 && shown < 1000.0);
    write!(f, "{shown:.digits$} {}", units[unit])
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(f, self.0, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(
            f,
            self.0,
            1024.0,
            &["B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s"],
        )
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(
            f,
            self.0,
            1000.0,
            &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"],
        )
    }
}

impl BitRate {
    /// The bytes that a link of this rate carries in `time`.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> Bytes {
        let bits = u128::from(self.0) * time.as_micros() / 1_000_000;
        Bytes(u64::try_from(bits / 8).unwrap_or(u64::MAX))
    }
}

impl ByteRate {
    /// The mean rate at which `bytes` were moved in `time`; nothing in no time is zero.
    #[must_use]
    pub fn of(bytes: Bytes, time: Duration) -> Self {
        let micros = time.as_micros().max(1);
        let rate = u128::from(bytes.0) * 1_000_000 / micros;
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// The same rate in bits, to hold against a link.
    #[must_use]
    pub fn to_bits(self) -> BitRate {
        BitRate(self.0.saturating_mul(8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_rates_are_read_in_the_units_people_write() {
        assert_eq!("1GiB".parse(), Ok(Bytes(1 << 30)));
        assert_eq!("1.5 MiB".parse(), Ok(Bytes(3 << 19)));
        assert_eq!("512".parse(), Ok(Bytes(512)));
        assert_eq!("1gbit".parse(), Ok(BitRate(1_000_000_000)));
        assert_eq!("2.5Gbit/s".parse(), Ok(BitRate(2_500_000_000)));
        assert_eq!("100MiB/s".parse(), Ok(ByteRate(100 << 20)));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_an_example() {
        for bad in [
            "",
            "GiB",
            "1 parsec",
            "-1",
            "1e99GiB",
            "nan",
            "99999999999TiB",
        ] {
            let refused = bad.parse::<Bytes>().map_err(|e| e.to_string());
            assert!(refused.is_err_and(|e| e.contains("1GiB")), "{bad:?}");
        }
    }

    #[test]
    fn quantities_are_shown_with_their_unit() {
        assert_eq!(Bytes(0).to_string(), "0 B");
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
        assert_eq!(BitRate(994_000_000).to_string(), "994 Mbit/s");
        assert_eq!(BitRate(25_000_000_000).to_string(), "25 Gbit/s");
    }

    #[test]
    fn a_link_carries_its_rate() {
        let rate = BitRate(1_000_000_000);
        assert_eq!(rate.bytes_in(Duration::from_millis(8)), Bytes(1_000_000));
        assert_eq!(
            ByteRate::of(Bytes(125_000_000), Duration::from_secs(1)).to_bits(),
            rate
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_panic(text in "\\PC{0,24}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<BitRate>();
        }

        #[test]
        fn json_keeps_a_quantity_exactly(value: u64) {
            let json = serde_json::to_string(&Bytes(value)).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), Bytes(value));
        }
    }
}
