//! Files in the root file system, which is the guest's page cache: copied from a disk that is not
//! looked at again, and verified against sums taken then.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use drover_probe::held::{Held, one_word};
use drover_probe::report::Line;
use drover_probe::settings::PAGE;
use drover_probe::sums;

use super::disk::DRIVER;
use super::{load_module, patiently, start};

/// The disk: nothing but an archive.
const DISK: &str = "/dev/vda";

/// Where its files go.
const PLACE: &str = "/held";

/// Bytes verified at once: an emulated guest takes a millisecond.
const PIECE: usize = 64 * PAGE;

/// Files, and the sum of each piece of them.
pub struct Files {
    paths: Vec<PathBuf>,
    pieces: Vec<Piece>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Piece {
    file: usize,
    offset: u64,
    length: usize,
    sum: u64,
}

/// Copies the disk's files and takes their sums.
///
/// # Errors
/// No disk, one that holds something else, or no room.
pub fn fetch() -> io::Result<Files> {
    load_module(DRIVER);
    let disk = patiently(|| File::open(DISK))?;
    fs::create_dir_all(PLACE)?;
    let unpack = start(
        Command::new("/bin/busybox")
            .args(["cpio", "-i", "-d"])
            .current_dir(PLACE)
            .stdin(Stdio::from(disk))
            .stdout(Stdio::null()),
    )?
    .wait()?;
    if !unpack.success() {
        return Err(io::Error::other(format!("unpacking {DISK}: {unpack}")));
    }
    let mut files = Files {
        paths: Vec::new(),
        pieces: Vec::new(),
        buffer: vec![0; PIECE],
    };
    files.take_sums(Path::new(PLACE))?;
    Ok(files)
}

impl Files {
    fn take_sums(&mut self, folder: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                self.take_sums(&path)?;
            } else {
                self.take_file(path)?;
            }
        }
        Ok(())
    }

    fn take_file(&mut self, path: PathBuf) -> io::Result<()> {
        let (file, size) = (self.paths.len(), fs::metadata(&path)?.len());
        self.paths.push(path);
        for offset in (0..size).step_by(PIECE) {
            let left = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let mut piece = Piece {
                file,
                offset,
                length: left.min(PIECE),
                sum: 0,
            };
            piece.sum = self.sum(piece)?;
            self.pieces.push(piece);
        }
        Ok(())
    }

    fn sum(&mut self, piece: Piece) -> io::Result<u64> {
        let bytes = &mut self.buffer[..piece.length];
        File::open(&self.paths[piece.file])?.read_exact_at(bytes, piece.offset)?;
        Ok(sums::bytes(bytes))
    }
}

impl Held for Files {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn pages(&self, piece: usize) -> u64 {
        self.pieces[piece].length.div_ceil(PAGE) as u64
    }

    fn verify(&mut self, piece: usize) -> Vec<Line> {
        let piece = self.pieces[piece];
        let damage = match self.sum(piece) {
            Ok(sum) if sum == piece.sum => return Vec::new(),
            Ok(_) => "checksum".to_owned(),
            Err(error) => one_word(&error.to_string()),
        };
        let path = self.paths[piece.file].display().to_string();
        vec![Line::Bad {
            page: piece.offset / PAGE as u64,
            class: one_word(&format!("file:{path}")),
            damage,
        }]
    }

    fn change(&mut self) {}
}
