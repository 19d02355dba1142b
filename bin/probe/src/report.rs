//! The lines that the probe writes on the guest's serial port, for both ends.
//!
//! ```text
//! hb seq=812 us=9412345 w=4096 v=81920 p=3 b=0 c=1f0a93be
//! |  |       |          |      |       |   |   checksum of the line up to here
//! |  |       |          |      |       |   bad pages found since the beginning
//! |  |       |          |      |       complete passes over all pages
//! |  |       |          |      pages verified        all since the beginning
//! |  |       |          pages rewritten
//! |  |       the guest's monotonic clock
//! |  one more each line
//! ```
//! A guest with a disk of its own has ` d=` and the pages rewritten there before ` c=`.
//!
//! # Invariant
//! A line that was cut, or mixed with the kernel's own messages, is no [`Line`].

use std::fmt;
use std::str::FromStr;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The guest lives.
    Heartbeat(Heartbeat),
    /// All pages are filled; from here on they are verified.
    Ready {
        /// How many pages.
        pages: u64,
        /// Filling them took this long.
        us: u64,
    },
    /// The answer to [`Command::Verify`].
    Verified(Verified),
    /// A page is not what it must be. Told for the first few only.
    Bad {
        /// Its number; of what is held beside the pages, that of the piece or document.
        page: u64,
        /// What it holds: a word of [`crate::content::Class::name`], `document`, `disk`, or `file:` and
        /// its path.
        class: String,
        /// `checksum`, `generation`, `differs`, or why it cannot be read, as words joined by `_`.
        damage: String,
    },
    /// The probe cannot work.
    Unusable {
        /// What is wrong, as words joined by `_`.
        reason: String,
    },
}

/// See the picture above.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heartbeat {
    /// One more each line.
    pub sequence: u64,
    /// The guest's monotonic clock in microseconds.
    pub micros: u64,
    /// Pages rewritten since the beginning.
    pub rewrites: u64,
    /// Pages verified since the beginning.
    pub verified: u64,
    /// Complete passes over all pages.
    pub passes: u64,
    /// Bad pages found since the beginning.
    pub bad: u64,
    /// Pages of its own disk rewritten since the beginning; 0 without one.
    pub disk: u64,
}

/// One pass over every page, begun when it was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// How many passes were asked for so far, this one included.
    pub request: u64,
    /// Pages looked at.
    pub pages: u64,
    /// Pages found bad.
    pub bad: u64,
    /// The pass took this long in the guest.
    pub us: u64,
}

/// What the probe can be told: one byte on the serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Verify every page now, as fast as possible, and answer [`Line::Verified`].
    Verify,
    /// Say [`Line::Ready`] again, if it is so.
    Greet,
    /// Power off.
    PowerOff,
}

impl Command {
    /// Its byte.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Verify => b'v',
            Self::Greet => b'g',
            Self::PowerOff => b'p',
        }
    }

    /// The command of this byte.
    #[must_use]
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Verify, Self::Greet, Self::PowerOff]
            .into_iter()
            .find(|c| c.byte() == byte)
    }
}

impl Line {
    fn body(&self) -> String {
        match self {
            Self::Heartbeat(h) => {
                let disk = match h.disk {
                    0 => String::new(),
                    pages => format!(" d={pages}"),
                };
                format!(
                    "hb seq={} us={} w={} v={} p={} b={}{disk}",
                    h.sequence, h.micros, h.rewrites, h.verified, h.passes, h.bad
                )
            }
            Self::Ready { pages, us } => format!("ready pages={pages} us={us}"),
            Self::Verified(v) => {
                format!(
                    "verified n={} pages={} b={} us={}",
                    v.request, v.pages, v.bad, v.us
                )
            }
            Self::Bad {
                page,
                class,
                damage,
            } => {
                format!("bad page={page} class={class} damage={damage}")
            }
            Self::Unusable { reason } => format!("unusable reason={reason}"),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body();
        write!(f, "{body} c={:08x}", checksum(&body))
    }
}

/// FNV-1a, 32 bits: against cut and mixed lines.
fn checksum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// This text is no line of the probe's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotALine;

impl FromStr for Line {
    type Err = NotALine;

    fn from_str(text: &str) -> Result<Self, NotALine> {
        let (body, sum) = text.trim_end().rsplit_once(" c=").ok_or(NotALine)?;
        if sum != format!("{:08x}", checksum(body)) {
            return Err(NotALine);
        }
        let (kind, fields) = body.split_once(' ').ok_or(NotALine)?;
        parse(kind, &Fields(fields)).ok_or(NotALine)
    }
}

fn parse(kind: &str, fields: &Fields<'_>) -> Option<Line> {
    Some(match kind {
        "hb" => Line::Heartbeat(Heartbeat {
            sequence: fields.number("seq")?,
            micros: fields.number("us")?,
            rewrites: fields.number("w")?,
            verified: fields.number("v")?,
            passes: fields.number("p")?,
            bad: fields.number("b")?,
            disk: fields.number("d").unwrap_or(0),
        }),
        "ready" => Line::Ready {
            pages: fields.number("pages")?,
            us: fields.number("us")?,
        },
        "verified" => Line::Verified(Verified {
            request: fields.number("n")?,
            pages: fields.number("pages")?,
            bad: fields.number("b")?,
            us: fields.number("us")?,
        }),
        "bad" => Line::Bad {
            page: fields.number("page")?,
            class: fields.text("class")?,
            damage: fields.text("damage")?,
        },
        "unusable" => Line::Unusable {
            reason: fields.text("reason")?,
        },
        _ => return None,
    })
}

struct Fields<'a>(&'a str);

impl Fields<'_> {
    fn find(&self, key: &str) -> Option<&str> {
        self.0
            .split(' ')
            .find_map(|field| field.strip_prefix(key)?.strip_prefix('='))
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.find(key)?.parse().ok()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.find(key).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        vec![
            Line::Heartbeat(Heartbeat {
                sequence: 1,
                micros: 2,
                rewrites: 3,
                verified: 4,
                passes: 5,
                bad: 6,
                disk: 0,
            }),
            Line::Heartbeat(Heartbeat {
                sequence: 1,
                disk: 4,
                ..Heartbeat::default()
            }),
            Line::Ready { pages: 7, us: 8 },
            Line::Verified(Verified {
                request: 1,
                pages: 9,
                bad: 0,
                us: 10,
            }),
            Line::Bad {
                page: 11,
                class: "files".to_owned(),
                damage: "checksum".to_owned(),
            },
            Line::Unusable {
                reason: "drover.seed=x".to_owned(),
            },
        ]
    }

    #[test]
    fn every_line_is_read_back_as_it_was_written() {
        for line in lines() {
            assert_eq!(line.to_string().parse(), Ok(line.clone()));
            assert_eq!(format!("{line}\r\n").parse(), Ok(line));
        }
    }

    #[test]
    fn a_line_that_was_cut_or_mixed_is_refused() {
        for line in lines() {
            let text = line.to_string();
            for cut in 0..text.len() {
                assert!(text[..cut].parse::<Line>().is_err(), "{:?}", &text[..cut]);
                assert!(
                    text[cut + 1..].parse::<Line>().is_err(),
                    "{:?}",
                    &text[cut + 1..]
                );
            }
            let mixed = text.replacen('=', "=[ 3.1] kernel: hello ", 1);
            assert!(mixed.parse::<Line>().is_err(), "{mixed:?}");
        }
    }

    #[test]
    fn commands_are_known_by_their_byte() {
        assert_eq!(Command::from_byte(b'v'), Some(Command::Verify));
        assert_eq!(Command::from_byte(b'\n'), None);
    }
}
