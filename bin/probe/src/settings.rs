//! What the kernel command line asks of the probe.
//!
//! Every setting is one word `drover.KEY=VALUE`. Sizes are plain numbers of bytes: whoever writes
//! the command line is a program.

use std::fmt;

use crate::content::Mix;

/// Bytes in a page of the guest.
pub const PAGE: usize = 4096;

/// How often the guest says that it lives.
pub const HEARTBEAT_MILLIS: u64 = 10;

/// A command line that cannot be obeyed.
#[derive(Debug, PartialEq, Eq)]
pub struct Unusable(pub String);

/// How fast the working set is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Bytes of pages a second.
    Bytes(u64),
    /// As fast as the guest can.
    Max,
}

impl Rate {
    fn read(text: &str) -> Option<Self> {
        match text {
            "max" => Some(Self::Max),
            bytes => bytes.parse().ok().map(Self::Bytes),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// What a guest holds beside the pages that the probe fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Nothing.
    Nothing,
    /// The files of its disk, copied into its root file system.
    Files,
    /// Documents in a key-value store, so many bytes of them.
    Store(u64),
    /// The same in the heap of a Python process.
    Python(u64),
}

impl Holds {
    fn read(text: &str) -> Option<Self> {
        let (word, bytes) = text.split_once(':').unwrap_or((text, ""));
        Some(match word {
            "nothing" => Self::Nothing,
            "files" => Self::Files,
            "store" => Self::Store(bytes.parse().ok()?),
            "python" => Self::Python(bytes.parse().ok()?),
            _ => return None,
        })
    }
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Files => f.write_str("files"),
            Self::Store(bytes) => write!(f, "store:{bytes}"),
            Self::Python(bytes) => write!(f, "python:{bytes}"),
        }
    }
}

/// A disk that is the guest's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disk {
    /// Pages filled, from its beginning on.
    pub pages: usize,
    /// The first so many of them are rewritten in turn.
    pub working_set: usize,
    /// How fast.
    pub rewrite: Rate,
}

impl Disk {
    fn read(text: &str) -> Option<Self> {
        let (content, rest) = text.split_once(':')?;
        let (working_set, rate) = rest.split_once(':')?;
        let pages = |bytes: &str| Some(bytes.parse::<usize>().ok()? / PAGE);
        Some(Self {
            pages: pages(content)?,
            working_set: pages(working_set)?,
            rewrite: Rate::read(rate)?,
        })
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [content, working_set] = [self.pages, self.working_set].map(|pages| pages * PAGE);
        write!(f, "{content}:{working_set}:{}", self.rewrite)
    }
}

/// The probe's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Everything random follows from it.
    pub seed: u64,
    /// Pages filled, checked and, at the beginning, rewritten.
    pub pages: usize,
    /// What they hold.
    pub mix: Mix,
    /// Of 100 pages, those that every guest of the same image has, as long as they are not rewritten.
    pub common: u8,
    /// The first so many pages are rewritten in turn.
    pub working_set: usize,
    /// How fast.
    pub rewrite: Rate,
    /// Bytes changed each time a page is rewritten.
    pub touch: usize,
    /// Bytes a second that are verified when nobody asks for more.
    pub verify: u64,
    /// What is held beside the pages.
    pub holds: Holds,
    /// The disk that it writes to, where it has one.
    pub disk: Option<Disk>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 1,
            pages: (64 << 20) / PAGE,
            mix: Mix::default(),
            common: 0,
            working_set: (4 << 20) / PAGE,
            rewrite: Rate::Bytes(16 << 20),
            touch: 512,
            verify: 32 << 20,
            holds: Holds::Nothing,
            disk: None,
        }
    }
}

impl Settings {
    /// Reads the words that are the probe's; others are the kernel's.
    ///
    /// # Errors
    /// A word of ours with an unknown key or a value that is not usable.
    pub fn parse(command_line: &str) -> Result<Self, Unusable> {
        let mut settings = Self::default();
        for word in command_line.split_whitespace() {
            if let Some((key, value)) = word.strip_prefix("drover.").and_then(|w| w.split_once('='))
            {
                settings
                    .set(key, value)
                    .ok_or_else(|| Unusable(format!("drover.{key}={value}")))?;
            }
        }
        settings.working_set = settings.working_set.min(settings.pages);
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "seed" => self.seed = value.parse().ok()?,
            "content" => self.pages = value.parse::<usize>().ok()? / PAGE,
            "mix" => self.mix = value.parse().ok()?,
            "common" => self.common = value.parse().ok().filter(|percent| *percent <= 100)?,
            "working_set" => self.working_set = value.parse::<usize>().ok()? / PAGE,
            "rate" => self.rewrite = Rate::read(value)?,
            "touch" => self.touch = value.parse::<usize>().ok()?.clamp(8, PAGE),
            "verify" => self.verify = value.parse().ok()?,
            "holds" => self.holds = Holds::read(value)?,
            "disk" => self.disk = Some(Disk::read(value)?),
            _ => return None,
        }
        Some(())
    }
}

/// The words for the kernel command line.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |pages: usize| pages * PAGE;
        write!(
            f,
            "drover.seed={} drover.content={}",
            self.seed,
            bytes(self.pages)
        )?;
        write!(
            f,
            " drover.mix={} drover.common={} drover.working_set={}",
            self.mix,
            self.common,
            bytes(self.working_set)
        )?;
        write!(
            f,
            " drover.rate={} drover.touch={} drover.verify={} drover.holds={}",
            self.rewrite, self.touch, self.verify, self.holds
        )?;
        match &self.disk {
            Some(disk) => write!(f, " drover.disk={disk}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_kernel_are_left_alone_and_ours_are_read() {
        let settings = Settings::parse(
            "console=ttyS0 quiet drover.seed=9 drover.content=8192 drover.rate=max \
             drover.mix=zero=50,random=50 drover.working_set=999999",
        )
        .unwrap();
        assert_eq!(settings.seed, 9);
        assert_eq!(settings.pages, 2);
        assert_eq!(settings.working_set, 2, "no larger than the content");
        assert_eq!(settings.rewrite, Rate::Max);
    }

    #[test]
    fn settings_are_read_as_they_were_written() {
        let settings = Settings {
            seed: 3,
            rewrite: Rate::Max,
            verify: 0,
            ..Settings::default()
        };
        let holding = [
            Holds::Nothing,
            Holds::Files,
            Holds::Store(5),
            Holds::Python(6),
        ]
        .map(|holds| Settings {
            holds,
            ..Settings::default()
        });
        let with_disk = Settings {
            disk: Some(Disk {
                pages: 256,
                working_set: 16,
                rewrite: Rate::Bytes(4096),
            }),
            ..Settings::default()
        };
        for settings in holding.into_iter().chain([settings, with_disk]) {
            assert_eq!(Settings::parse(&format!("quiet {settings}")), Ok(settings));
        }
    }

    #[test]
    fn a_word_of_ours_that_is_wrong_is_named() {
        for bad in [
            "drover.sed=1",
            "drover.seed=x",
            "drover.mix=zero",
            "drover.mix=zero=0",
            "drover.holds=store",
            "drover.holds=gold",
            "drover.disk=4096",
            "drover.disk=4096:4096:fast",
        ] {
            assert_eq!(Settings::parse(bad), Err(Unusable(bad.to_owned())));
        }
    }
}
