//! Process 1 of a lab guest; see the library for what it does.

mod guest;

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use drover_probe::arena::Arena;
use drover_probe::content::Source;
use drover_probe::held::{Both, Held, one_word};
use drover_probe::pace::{IDLE, Pace, micros};
use drover_probe::report::{Command, Heartbeat, Line};
use drover_probe::settings::{HEARTBEAT_MILLIS, Rate, Settings};
use drover_probe::work::{TOLD, Work};
use guest::disk::OwnDisk;
use rustix::process::setpriority_process;
use rustix::system::{RebootCommand, reboot};

/// Real file contents, packed into the initramfs; removed once read, so that they are in memory once.
const CORPUS: &str = "/corpus";

/// Kernel modules for the power button, where the kernel has them as modules.
const MODULES: [&str; 2] = ["/modules/button.ko.xz", "/modules/evdev.ko.xz"];

/// What the threads tell each other.
#[derive(Default)]
struct Shared {
    rewrites: AtomicU64,
    verified: AtomicU64,
    passes: AtomicU64,
    bad: AtomicU64,
    /// Pages rewritten on the guest's own disk, and found bad before.
    disk: AtomicU64,
    disk_bad: AtomicU64,
    /// Full passes asked for.
    asked: AtomicU64,
    /// Pages filled or held, once all are; 0 before.
    ready: AtomicU64,
    fill_micros: AtomicU64,
}

fn main() {
    let shared = Arc::new(Shared::default());
    let words = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    match Settings::parse(&words) {
        Ok(settings) => start(&settings, &shared),
        Err(unusable) => say(&Line::Unusable { reason: unusable.0 }),
    }
    // Process 1 must not end.
    loop {
        thread::park();
    }
}

fn start(settings: &Settings, shared: &Arc<Shared>) {
    let own = Arc::clone(shared);
    spawn("heartbeat", move || heartbeat(&own));
    let own = Arc::clone(shared);
    spawn("commands", move || commands(&own));
    watch_power_button();
    let (own, settings) = (Arc::clone(shared), settings.clone());
    spawn("work", move || work(&settings, &own));
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    if let Err(error) = thread::Builder::new().name(name.to_owned()).spawn(body) {
        say(&Line::Unusable {
            reason: format!("no_thread_{name}:{error}").replace(' ', "_"),
        });
    }
}

fn say(line: &Line) {
    // One write a line: lines of two threads do not mix. Nobody is told when nobody can be.
    let _ = std::io::stdout()
        .lock()
        .write_all(format!("{line}\n").as_bytes());
}

/// Gives the calling thread its share of the CPU: the heartbeat goes first, the work last.
fn set_nice(nice: i32) {
    let _ = setpriority_process(None, nice);
}

fn heartbeat(shared: &Shared) {
    set_nice(-20);
    let start = Instant::now();
    let period = Duration::from_millis(HEARTBEAT_MILLIS);
    let mut next = start;
    for sequence in 0.. {
        say(&Line::Heartbeat(Heartbeat {
            sequence,
            micros: micros(start.elapsed()),
            rewrites: shared.rewrites.load(Ordering::Relaxed),
            verified: shared.verified.load(Ordering::Relaxed),
            passes: shared.passes.load(Ordering::Relaxed),
            bad: shared.bad.load(Ordering::Relaxed) + shared.disk_bad.load(Ordering::Relaxed),
            disk: shared.disk.load(Ordering::Relaxed),
        }));
        // Beats that were missed stay missed: a burst would hide the gap.
        next = (next + period).max(Instant::now());
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn commands(shared: &Shared) {
    let mut byte = [0];
    while let Ok(1) = std::io::stdin().read(&mut byte) {
        match Command::from_byte(byte[0]) {
            Some(Command::Verify) => {
                shared.asked.fetch_add(1, Ordering::Relaxed);
            }
            Some(Command::Greet) => greet(shared),
            Some(Command::PowerOff) => power_off(),
            None => {}
        }
    }
}

fn greet(shared: &Shared) {
    let pages = shared.ready.load(Ordering::Acquire);
    if pages > 0 {
        say(&Line::Ready {
            pages,
            us: shared.fill_micros.load(Ordering::Relaxed),
        });
    }
}

fn power_off() {
    let _ = reboot(RebootCommand::PowerOff);
}

fn work(settings: &Settings, shared: &Arc<Shared>) {
    set_nice(19);
    let start = Instant::now();
    let held = match hold(settings, shared) {
        Ok(held) => held,
        Err(error) => {
            say(&Line::Unusable {
                reason: one_word(&error.to_string()),
            });
            return;
        }
    };
    let mut work = fill(settings, held);
    shared
        .fill_micros
        .store(micros(start.elapsed()), Ordering::Relaxed);
    shared.ready.store(work.page_count(), Ordering::Release);
    greet(shared);
    let mut answered = 0;
    loop {
        let asked = shared.asked.load(Ordering::Relaxed);
        if asked != answered {
            answered = asked;
            work.ask(asked, Instant::now());
        }
        let idle = work.step(Instant::now(), &mut |line| say(&line));
        let progress = work.progress();
        shared.rewrites.store(progress.rewrites, Ordering::Relaxed);
        shared.verified.store(progress.verified, Ordering::Relaxed);
        shared.passes.store(progress.passes, Ordering::Relaxed);
        shared.bad.store(progress.bad, Ordering::Relaxed);
        if !idle.is_zero() {
            thread::sleep(idle);
        }
    }
}

/// Fetches what is held beside the pages, and fills the guest's own disk, which is rewritten from then on.
fn hold(settings: &Settings, shared: &Arc<Shared>) -> io::Result<Option<Box<dyn Held>>> {
    let held = guest::hold(settings)?;
    let Some(settings_of_disk) = &settings.disk else {
        return Ok(held);
    };
    let disk = OwnDisk::fill(settings, settings_of_disk)?;
    if settings_of_disk.working_set > 0 {
        let (own, rate, rewritten) = (Arc::clone(shared), settings_of_disk.rewrite, disk.clone());
        spawn("disk", move || rewrite_disk(&rewritten, rate, &own));
    }
    Ok(Some(match held {
        Some(held) => Box::new(Both(held, Box::new(disk))),
        None => Box::new(disk),
    }))
}

/// Before the work, so that it comes between two pieces of a disk that is verified.
fn rewrite_disk(disk: &OwnDisk, rate: Rate, shared: &Shared) {
    let mut pace = Pace::new(rate, Instant::now());
    loop {
        let due = pace.due(Instant::now());
        if due == 0 {
            thread::sleep(IDLE);
            continue;
        }
        let (bad, rewrites) = disk.rewrite(due);
        shared.disk.store(rewrites, Ordering::Relaxed);
        for line in bad {
            if shared.disk_bad.fetch_add(1, Ordering::Relaxed) < TOLD {
                say(&line);
            }
        }
    }
}

fn fill(settings: &Settings, held: Option<Box<dyn Held>>) -> Work {
    let files = fs::read(CORPUS).unwrap_or_default();
    let _ = fs::remove_file(CORPUS);
    let source = Source::new(
        settings.seed,
        (settings.mix.clone(), settings.common),
        settings.working_set,
        files,
    );
    let mut arena = Arena::new(source, settings.pages, settings.working_set, settings.touch);
    for page in 0..arena.page_count() {
        arena.fill(page);
    }
    Work::new(arena, held, settings, Instant::now())
}

/// Powers off when somebody presses the button, as the hypervisor does to ask for an orderly end.
fn watch_power_button() {
    MODULES.into_iter().for_each(guest::load_module);
    for number in 0..8 {
        if let Ok(device) = File::open(format!("/dev/input/event{number}")) {
            spawn("button", move || wait_for_button(device));
        }
    }
}

/// Reads `struct input_event` of linux/input.h on 64 bits: 16 bytes time, type, code, value.
fn wait_for_button(mut device: File) {
    const EV_KEY: u16 = 1;
    const KEY_POWER: u16 = 116;
    let mut event = [0; 24];
    while device.read_exact(&mut event).is_ok() {
        let kind = u16::from_le_bytes([event[16], event[17]]);
        let code = u16::from_le_bytes([event[18], event[19]]);
        if (kind, code, event[20]) == (EV_KEY, KEY_POWER, 1) {
            power_off();
        }
    }
}
