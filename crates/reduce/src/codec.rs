//! Codecs: what makes fewer bytes of any bytes.
//!
//! zstd remembers what went before on the same channel, within a window: each section ends with a flush, not with a
//! frame. lz4 does not, and is quicker. A change of zstd's level begins a frame, and forgets.

use serde::{Deserialize, Serialize};
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, FrameFormat, InBuffer, OutBuffer, ResetDirective,
};

use crate::limits::{WINDOW_LOG_LEAST, WINDOW_LOG_MOST};
use crate::wrong::Wrong;

/// zstd's level: the higher, the fewer bytes, and the slower. Negative ones are quicker than 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i8", into = "i8")]
pub struct Level(i8);

impl Level {
    /// As quick as lz4, and about as good.
    pub const QUICKEST: Self = Self(-5);
    /// Between that and the usual one.
    pub const QUICK: Self = Self(-1);
    /// zstd's quickest that is not negative.
    pub const USUAL: Self = Self(1);
    /// 7 to 11 % fewer bytes than the usual one, in two to three times its time (`docs/measurements/reduction.md`).
    pub const THOROUGH: Self = Self(3);
    /// For lines that are slow enough: 6 to 10 % fewer bytes again, in twice the time again.
    pub const SLOWEST: Self = Self(6);

    /// `-7` to `6`: quicker ones make hardly fewer bytes than none at all, slower ones were not measured.
    #[must_use]
    pub fn new(level: i8) -> Option<Self> {
        ((-7..=6).contains(&level) && level != 0).then_some(Self(level))
    }
}

/// No [`Level`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("zstd has no level {0} here")]
pub struct NoLevel(i8);

impl TryFrom<i8> for Level {
    type Error = NoLevel;

    fn try_from(level: i8) -> Result<Self, NoLevel> {
        Self::new(level).ok_or(NoLevel(level))
    }
}

impl From<Level> for i8 {
    fn from(level: Level) -> Self {
        level.0
    }
}

/// What a section goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// Nothing.
    None,
    /// lz4, each section by itself.
    Lz4,
    /// zstd, with what the channel sent before.
    Zstd(Level),
}

/// What a section went through, as it is told to the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    None,
    Lz4,
    Zstd,
    ZstdBegins,
}

impl Packing {
    pub const fn to_bits(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Lz4 => 1,
            Self::Zstd => 2,
            Self::ZstdBegins => 3,
        }
    }

    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            3 => Some(Self::ZstdBegins),
            _ => None,
        }
    }
}

/// zstd says no more than that it has no memory, or was used wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("zstd failed: {0}")]
pub struct ZstdFailed(&'static str);

impl From<usize> for ZstdFailed {
    fn from(code: usize) -> Self {
        Self(zstd_safe::get_error_name(code))
    }
}

/// Packs the sections of one channel.
pub struct Packer {
    window_log: u32,
    /// Made when it is first needed: it takes more than its window.
    zstd: Option<(CCtx<'static>, Level)>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let level = self.zstd.as_ref().map(|(_, level)| level);
        f.debug_struct("Packer")
            .field("level", &level)
            .finish_non_exhaustive()
    }
}

impl Packer {
    /// Of a channel of which 2^`window_log` bytes are remembered.
    pub fn new(window_log: u32) -> Self {
        Self {
            window_log: window_log.clamp(WINDOW_LOG_LEAST, WINDOW_LOG_MOST),
            zstd: None,
        }
    }

    /// Appends what the codec makes of `bytes` to `to`.
    pub fn pack(
        &mut self,
        codec: Codec,
        bytes: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<Packing, ZstdFailed> {
        match codec {
            Codec::None => Ok(stored(bytes, to)),
            Codec::Lz4 => Ok(lz4(bytes, to)),
            Codec::Zstd(level) => self.zstd(level, bytes, to),
        }
    }

    fn zstd(
        &mut self,
        level: Level,
        bytes: &[u8],
        to: &mut Vec<u8>,
    ) -> Result<Packing, ZstdFailed> {
        let begins = self.zstd.as_ref().is_none_or(|(_, of)| *of != level);
        if begins {
            let held = self.zstd.take().map(|(context, _)| context);
            let context = begun(held, level, self.window_log)?;
            self.zstd = Some((context, level));
        }
        if let Some((context, _)) = &mut self.zstd {
            flushed(context, bytes, to)?;
        }
        Ok(if begins {
            Packing::ZstdBegins
        } else {
            Packing::Zstd
        })
    }
}

fn stored(bytes: &[u8], to: &mut Vec<u8>) -> Packing {
    to.extend_from_slice(bytes);
    Packing::None
}

fn lz4(bytes: &[u8], to: &mut Vec<u8>) -> Packing {
    let begin = to.len();
    to.resize(
        begin + lz4_flex::block::get_maximum_output_size(bytes.len()),
        0,
    );
    match lz4_flex::block::compress_into(bytes, &mut to[begin..]) {
        Ok(count) if count < bytes.len() => {
            to.truncate(begin + count);
            Packing::Lz4
        }
        _ => {
            to.truncate(begin);
            stored(bytes, to)
        }
    }
}

/// A context that begins a frame.
fn begun(
    held: Option<CCtx<'static>>,
    level: Level,
    window_log: u32,
) -> Result<CCtx<'static>, ZstdFailed> {
    let mut context = held
        .or_else(CCtx::try_create)
        .ok_or(ZstdFailed("no memory for a context"))?;
    context.reset(ResetDirective::SessionAndParameters)?;
    for parameter in [
        CParameter::CompressionLevel(level.0.into()),
        CParameter::WindowLog(window_log),
        CParameter::Format(FrameFormat::Magicless),
        CParameter::ContentSizeFlag(false),
        CParameter::ChecksumFlag(false),
    ] {
        context.set_parameter(parameter)?;
    }
    Ok(context)
}

/// Packs all of it, so that the other end gets all of it out of what is appended.
fn flushed(context: &mut CCtx<'_>, bytes: &[u8], to: &mut Vec<u8>) -> Result<(), ZstdFailed> {
    let mut input = InBuffer::around(bytes);
    loop {
        let at = to.len();
        // As a rule enough for all; where it is not, there is another turn.
        to.reserve(zstd_safe::compress_bound(bytes.len() - input.pos()).max(64));
        let mut output = OutBuffer::around_pos(to, at);
        let flush = ZSTD_EndDirective::ZSTD_e_flush;
        let left = context.compress_stream2(&mut output, &mut input, flush)?;
        if left == 0 && input.pos() == bytes.len() {
            return Ok(());
        }
    }
}

/// Unpacks the sections of one channel.
pub struct Unpacker {
    window_log: u32,
    zstd: Option<DCtx<'static>>,
}

impl std::fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}

impl Unpacker {
    /// Of a channel of which 2^`window_log` bytes are remembered.
    pub fn new(window_log: u32) -> Self {
        Self {
            window_log: window_log.clamp(WINDOW_LOG_LEAST, WINDOW_LOG_MOST),
            zstd: None,
        }
    }

    /// Replaces what is in `to` with the `count` bytes that `packed` stands for.
    pub fn unpack(
        &mut self,
        packing: Packing,
        packed: &[u8],
        count: usize,
        to: &mut Vec<u8>,
    ) -> Result<(), Wrong> {
        match packing {
            Packing::None => {
                to.clear();
                to.extend_from_slice(packed);
            }
            Packing::Lz4 => {
                to.resize(count, 0);
                let read = lz4_flex::block::decompress_into(packed, to);
                to.truncate(read.map_err(|_| wrong("lz4", "it is damaged"))?);
            }
            Packing::Zstd => self.zstd(packed, count, to)?,
            Packing::ZstdBegins => {
                self.begin()?;
                self.zstd(packed, count, to)?;
            }
        }
        if to.len() == count {
            Ok(())
        } else {
            Err(Wrong::Layout("a section of another length"))
        }
    }

    fn begin(&mut self) -> Result<(), Wrong> {
        let held = self.zstd.take().or_else(DCtx::try_create);
        let mut context = held.ok_or(wrong("zstd", "no memory for a context"))?;
        let ready = context
            .reset(ResetDirective::SessionAndParameters)
            .and_then(|_| context.set_parameter(DParameter::WindowLogMax(self.window_log)))
            .and_then(|_| context.set_parameter(DParameter::Format(FrameFormat::Magicless)));
        ready.map_err(zstd_wrong)?;
        self.zstd = Some(context);
        Ok(())
    }

    fn zstd(&mut self, packed: &[u8], count: usize, to: &mut Vec<u8>) -> Result<(), Wrong> {
        let context = self
            .zstd
            .as_mut()
            .ok_or(wrong("zstd", "it has no beginning"))?;
        to.resize(count, 0);
        let mut input = InBuffer::around(packed);
        let mut done = 0;
        loop {
            let before = (input.pos(), done);
            let mut output = OutBuffer::around_pos(&mut to[..], done);
            let read = context.decompress_stream(&mut output, &mut input);
            read.map_err(zstd_wrong)?;
            done = output.pos();
            if (input.pos(), done) == before {
                break;
            }
        }
        to.truncate(done);
        if input.pos() == packed.len() {
            Ok(())
        } else {
            Err(wrong("zstd", "it has more than it says"))
        }
    }
}

fn wrong(codec: &'static str, why: &'static str) -> Wrong {
    Wrong::Codec { codec, why }
}

fn zstd_wrong(code: usize) -> Wrong {
    wrong("zstd", zstd_safe::get_error_name(code))
}

#[cfg(test)]
impl Packer {
    /// What zstd has taken for it.
    pub fn taken(&self) -> usize {
        self.zstd
            .as_ref()
            .map_or(0, |(context, _)| context.sizeof())
    }
}

#[cfg(test)]
impl Unpacker {
    /// The same.
    pub fn taken(&self) -> usize {
        self.zstd.as_ref().map_or(0, DCtx::sizeof)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::CODECS;
    use crate::limits::{PACKING_BYTES, UNPACKING_BYTES};

    #[test]
    fn zstd_takes_its_window_and_no_more_beside_it_than_is_said() {
        let bytes: Vec<u8> = (0..256_u32 << 10)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        for window_log in WINDOW_LOG_LEAST..=24 {
            let window = 1 << window_log;
            let (mut packer, mut unpacker) = (Packer::new(window_log), Unpacker::new(window_log));
            // In one context, as levels change while a guest moves.
            for codec in CODECS.into_iter().rev().chain(CODECS) {
                let (mut packed, mut read) = (Vec::new(), Vec::new());
                let packing = packer.pack(codec, &bytes, &mut packed).unwrap();
                let count = bytes.len();
                unpacker.unpack(packing, &packed, count, &mut read).unwrap();
                assert!(read == bytes);
            }
            let taken = packer.taken();
            assert!(taken <= window + PACKING_BYTES, "{window_log}: {taken}");
            let taken = unpacker.taken();
            assert!(taken <= window + UNPACKING_BYTES, "{window_log}: {taken}");
        }
    }
}
