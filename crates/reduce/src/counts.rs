//! What became of the bytes.

use std::ops::{AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// What one section of chunks took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Bytes that it stands for.
    pub bytes: u64,
    /// Bytes that its codec made of them.
    pub packed: u64,
}

/// What became of the bytes of some chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Chunks that were described.
    pub chunks: u64,
    /// Bytes of QEMU.
    pub raw: u64,
    /// Bytes on the wire, headers of frames not counted.
    pub wire: u64,
    /// Of them, bytes that were carried as they are, in chunks that were not described.
    pub passed: u64,
    /// Bytes that are not pages.
    pub plain: u64,
    /// Pages filled with one word.
    pub filled: u64,
    /// Pages that the destination had.
    pub same: u64,
    /// Pages that its host had stored.
    #[serde(default)]
    pub stored: u64,
    /// Pages of which its host had stored another version.
    #[serde(default)]
    pub stored_changed: u64,
    /// Pages of which it had another version.
    pub changed: u64,
    /// What the changes took, in bytes before the codec.
    pub change_bytes: u64,
    /// Ordinary pages that crossed.
    pub ordinary: u64,
    /// Dense pages that crossed.
    pub dense: u64,
    /// Everything but dense pages.
    pub ordinary_section: Section,
    /// Dense pages.
    pub dense_section: Section,
}

impl Counts {
    /// Of a chunk of so many bytes that was not described.
    #[must_use]
    pub fn passed(bytes: usize) -> Self {
        let passed = bytes as u64;
        Self {
            raw: passed,
            wire: passed,
            passed,
            ..Self::default()
        }
    }
}

impl AddAssign for Section {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.packed += other.packed;
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.chunks += other.chunks;
        self.raw += other.raw;
        self.wire += other.wire;
        self.passed += other.passed;
        self.plain += other.plain;
        self.filled += other.filled;
        self.same += other.same;
        self.stored += other.stored;
        self.stored_changed += other.stored_changed;
        self.changed += other.changed;
        self.change_bytes += other.change_bytes;
        self.ordinary += other.ordinary;
        self.dense += other.dense;
        self.ordinary_section += other.ordinary_section;
        self.dense_section += other.dense_section;
    }
}

impl Sub for Section {
    type Output = Self;

    /// What was added since `other`.
    fn sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            packed: self.packed.saturating_sub(other.packed),
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    /// What was added since `other`.
    fn sub(self, other: Self) -> Self {
        Self {
            chunks: self.chunks.saturating_sub(other.chunks),
            raw: self.raw.saturating_sub(other.raw),
            wire: self.wire.saturating_sub(other.wire),
            passed: self.passed.saturating_sub(other.passed),
            plain: self.plain.saturating_sub(other.plain),
            filled: self.filled.saturating_sub(other.filled),
            same: self.same.saturating_sub(other.same),
            stored: self.stored.saturating_sub(other.stored),
            stored_changed: self.stored_changed.saturating_sub(other.stored_changed),
            changed: self.changed.saturating_sub(other.changed),
            change_bytes: self.change_bytes.saturating_sub(other.change_bytes),
            ordinary: self.ordinary.saturating_sub(other.ordinary),
            dense: self.dense.saturating_sub(other.dense),
            ordinary_section: self.ordinary_section - other.ordinary_section,
            dense_section: self.dense_section - other.dense_section,
        }
    }
}
