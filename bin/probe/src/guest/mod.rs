//! The guest around the probe: what it loads, mounts, and holds beside the probe's pages.

pub mod disk;
mod files;
mod python;
mod store;

use std::fs::{self, File};
use std::io;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use drover_probe::documents::Author;
use drover_probe::held::{Documents, Held};
use drover_probe::settings::{Holds, Settings};
use rustix::system::finit_module;

/// Text that documents quote from, packed into the initramfs; removed once read.
const PROSE: &str = "/prose";

/// What programs that the probe starts say on their stderr.
const SAID: &str = "/said";

/// For a device or a program's socket to appear: an emulated guest on a busy machine was seen to
/// take 3 s for it.
const APPEAR: Duration = Duration::from_secs(60);

/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(10);

/// `MODULE_INIT_COMPRESSED_FILE` of the kernel: it decompresses the module itself.
const COMPRESSED: i32 = 4;

/// Loads a kernel module, where the image has it.
pub fn load_module(path: &str) {
    if let Ok(file) = File::open(path) {
        // What it was for is missed where it is used.
        let _ = finit_module(file, c"", COMPRESSED);
    }
}

/// Fetches or makes what is held beside the pages.
///
/// # Errors
/// What is missing, or what the program said that ought to hold it.
pub fn hold(settings: &Settings) -> io::Result<Option<Box<dyn Held>>> {
    let author = || {
        let prose = fs::read(PROSE).unwrap_or_default();
        let _ = fs::remove_file(PROSE);
        Author::new(settings.seed, prose)
    };
    let seed = settings.seed;
    let held: io::Result<Box<dyn Held>> = match settings.holds {
        Holds::Nothing => return Ok(None),
        Holds::Files => files::fetch().map(|files| Box::new(files) as Box<dyn Held>),
        Holds::Store(bytes) => store::Store::start()
            .and_then(|store| Documents::fill(store, author(), seed, bytes))
            .map(|held| Box::new(held) as Box<dyn Held>),
        Holds::Python(bytes) => python::Python::start()
            .and_then(|python| Documents::fill(python, author(), seed, bytes))
            .map(|held| Box::new(held) as Box<dyn Held>),
    };
    held.map(Some).map_err(|error| {
        let said = fs::read_to_string(SAID).unwrap_or_default();
        io::Error::new(error.kind(), format!("{error} {said}"))
    })
}

/// Starts a program whose words are kept for an error.
fn start(command: &mut Command) -> io::Result<Child> {
    let said = File::create(SAID)?;
    command.stderr(Stdio::from(said)).spawn()
}

/// Tries again until it succeeds, for some time.
fn patiently<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(_) if begun.elapsed() < APPEAR => thread::sleep(LOOK),
            done => return done,
        }
    }
}
