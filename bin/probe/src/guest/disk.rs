//! The disk that is the guest's own: filled, and then read, verified and rewritten all the time, past the guest's page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drover_probe::disk::DiskPages;
use drover_probe::held::{Held, one_word};
use drover_probe::report::Line;
use drover_probe::settings::{Disk, Holds, PAGE, Settings};
use rustix::fs::OFlags;

use super::{load_module, patiently};

/// The driver of the disk, where the kernel has it as a module.
pub const DRIVER: &str = "/modules/virtio_blk.ko.xz";

/// Pages filled or verified at once: 256 KiB, which an emulated guest verifies in some 2 ms. Memory and disk are rewritten between two
/// of them, and keep their rates.
const PIECE: usize = 64;

/// The disk, for the thread that rewrites it and for the one that verifies when it is asked to.
#[derive(Clone)]
pub struct OwnDisk(Arc<Mutex<Inner>>);

struct Inner {
    device: File,
    pages: DiskPages,
    /// Memory of one piece, and what it takes to begin at a page's: the kernel reads and writes in place.
    memory: Vec<u8>,
}

/// Where it is: behind the disk of files, where there is that.
fn device(settings: &Settings) -> &'static str {
    match settings.holds {
        Holds::Files => "/dev/vdb",
        _ => "/dev/vda",
    }
}

impl OwnDisk {
    /// Finds the disk and writes all of it that is asked for.
    ///
    /// # Errors
    /// No disk, or a smaller one.
    pub fn fill(settings: &Settings, disk: &Disk) -> io::Result<Self> {
        load_module(DRIVER);
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(direct);
        let device = patiently(|| options.open(device(settings)))?;
        let mut inner = Inner {
            device,
            pages: DiskPages::new(settings.seed, disk.pages, disk.working_set),
            memory: vec![0; (PIECE + 1) * PAGE],
        };
        for piece in 0..inner.pieces() {
            inner.write(inner.piece(piece))?;
        }
        inner.device.sync_data()?;
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    /// Verifies the next pages of the working set and rewrites each; what was wrong, and the rewrites so far.
    pub fn rewrite(&self, count: u64) -> (Vec<Line>, u64) {
        let mut inner = self.lock();
        let bad = (0..count).flat_map(|_| inner.rewrite()).collect();
        (bad, inner.pages.rewrites())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held for OwnDisk {
    fn pieces(&self) -> usize {
        self.lock().pieces()
    }

    fn pages(&self, piece: usize) -> u64 {
        self.lock().piece(piece).len() as u64
    }

    fn verify(&mut self, piece: usize) -> Vec<Line> {
        let mut inner = self.lock();
        let pages = inner.piece(piece);
        inner.verify(pages)
    }

    /// It has a rate and a thread of its own, so that a slow disk keeps nothing else waiting.
    fn change(&mut self) {}
}

impl Inner {
    fn pieces(&self) -> usize {
        self.pages.page_count().div_ceil(PIECE)
    }

    fn piece(&self, number: usize) -> Range<usize> {
        let first = number * PIECE;
        first..(first + PIECE).min(self.pages.page_count())
    }

    /// Writes pages as they must be.
    fn write(&mut self, pages: Range<usize>) -> io::Result<()> {
        let buffer = aligned(&mut self.memory, pages.len());
        for (page, bytes) in pages.clone().zip(buffer.as_chunks_mut().0) {
            self.pages.write(page, bytes);
        }
        self.device.write_all_at(buffer, offset(pages.start))
    }

    fn rewrite(&mut self) -> Vec<Line> {
        let Some(page) = self.pages.due() else {
            return Vec::new();
        };
        let mut bad = self.verify(page..page + 1);
        self.pages.rewrite();
        if let Err(error) = self.write(page..page + 1) {
            bad.push(damaged(page, &error.to_string()));
        }
        bad
    }

    /// Reads pages; a line for each that is not as it must be.
    fn verify(&mut self, pages: Range<usize>) -> Vec<Line> {
        let buffer = aligned(&mut self.memory, pages.len());
        if let Err(error) = self.device.read_exact_at(buffer, offset(pages.start)) {
            return vec![damaged(pages.start, &error.to_string())];
        }
        let each = pages.zip(buffer.as_chunks().0);
        let bad =
            each.filter_map(|(page, bytes)| Some((page, self.pages.verify(page, bytes).err()?)));
        bad.map(|(page, damage)| damaged(page, damage.name()))
            .collect()
    }
}

fn offset(page: usize) -> u64 {
    (page * PAGE) as u64
}

fn damaged(page: usize, damage: &str) -> Line {
    Line::Bad {
        page: page as u64,
        class: "disk".to_owned(),
        damage: one_word(damage),
    }
}

/// So many pages of memory that begin at a page's address, as `O_DIRECT` wants it.
fn aligned(memory: &mut [u8], pages: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(PAGE);
    &mut memory[start..start + pages * PAGE]
}
