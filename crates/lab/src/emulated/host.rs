//! Starting the machine, hearing what its program says, and ending it.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use drover_hypervisor::Qmp;
use drover_types::Bytes;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdout, Command};

use super::initramfs::{self, STATUS, hardware_address, pack};
use super::kernel::Kernel;
use super::link::{self, Link};
use super::said::Said;
use crate::command::{self, log_end};
use crate::guest::assembler::Assembler;
use crate::limits::{EMULATED_LINE, EMULATED_PIECE, EMULATED_SILENCE, EMULATED_STARTS, QEMU_START};
use crate::machine::available_memory;
use crate::require::{check_emulated, has_hardware_virtualisation};

/// Two nodes of two processors each, with half of the memory, in MiB.
const NODES: u32 = 2;
const NODE_CPUS: u32 = 2;
const NODE_MIB: u32 = 512;

/// What gives the machine files, by QEMU's name.
const FILES: &str = "virtio-9p-pci";

/// An adapter that QEMU emulates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// What its interface is called.
    pub name: String,
    /// QEMU's word for it, such as `igb`.
    pub model: String,
    /// Adapters with one number are on one wire.
    pub wire: u32,
}

/// What runs in the machine.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// What it finds in its environment, `PATH` as well if it is to have one.
    pub environment: Vec<(String, String)>,
    /// Folders of this machine that it finds even below one of those that the host has of its own, such as `/tmp`.
    pub folders: Vec<PathBuf>,
}

/// A machine.
#[derive(Debug, Clone)]
pub struct EmulatedHost {
    /// The QEMU that emulates it.
    pub qemu: PathBuf,
    /// What it starts.
    pub kernel: Kernel,
    /// Its adapters.
    pub adapters: Vec<Adapter>,
    /// Modules that are loaded, in this order, beside those without which there are no files.
    pub modules: Vec<String>,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The program's exit status.
    pub status: i32,
    /// What the program said, or the end of it.
    pub output: String,
    /// Why starts before this one came to nothing, in their order.
    pub begun_anew: Vec<String>,
}

impl EmulatedHost {
    /// One without adapters and further modules, of what this machine has.
    ///
    /// # Errors
    /// Something is missing, with what to do.
    pub fn new(qemu: &Path) -> Result<Self> {
        check_emulated(qemu)?;
        Ok(Self {
            qemu: qemu.to_owned(),
            kernel: Kernel::find()?,
            adapters: Vec::new(),
            modules: Vec::new(),
        })
    }

    /// Checks that this QEMU emulates all of it, that the kernel has all modules, and that there is memory for it.
    ///
    /// # Errors
    /// It does not, or has not; which one.
    pub async fn check(&self) -> Result<()> {
        let qemu = self.qemu.to_string_lossy();
        let known = command::run(&qemu, &["-device", "help"]).await?;
        let models = self.adapters.iter().map(|one| one.model.as_str());
        for model in models.chain([FILES]) {
            if !known.contains(&format!("name \"{model}\"")) {
                bail!("{qemu} emulates no {model}");
            }
        }
        let mut modules = self.modules.iter().map(String::as_str);
        if let Some(missing) = modules.find(|name| !self.kernel.has(name)) {
            bail!(
                "the kernel {} has no module {missing}",
                self.kernel.image.display()
            );
        }
        let memory = Bytes(u64::from(NODES * NODE_MIB) << 20);
        match available_memory() {
            Some(free) if free < memory => {
                bail!("an emulated host takes {memory} of memory, and {free} are free")
            }
            _ => Ok(()),
        }
    }

    /// Has the machine run a program, to the end of both. The thread that asks for it has to live as long, as that of `block_on` does.
    /// `folder` is for what the machine is made of; what is in its folder `out` afterwards was written by the program, to
    /// [`OUT`](super::OUT).
    ///
    /// # Errors
    /// The machine cannot be made or started, took longer than `within`, or ended before its program did.
    pub async fn run(&self, folder: &Path, program: &Program, within: Duration) -> Result<Ended> {
        let files = Files { folder };
        fs::create_dir_all(files.out()).with_context(|| format!("in {}", folder.display()))?;
        let base = initramfs::MODULES.map(str::to_owned);
        let wanted = [&base[..], &self.modules].concat();
        let modules = self.kernel.modules.in_order(&wanted).await?;
        let archive = pack(&modules, &self.adapters, program)?;
        let mut begun_anew = Vec::new();
        let mut output = Said::default();
        loop {
            let began = self.begin(&files, &archive, &mut begun_anew).await?;
            let ends = listen(began, &files, &mut output);
            let ended = tokio::time::timeout(within, ends).await;
            let said = || format!("it said:\n{output}\n{}", files.logs());
            let has_ended = match ended {
                Ok(ended) => ended.with_context(said)?,
                Err(_) => bail!(
                    "the program did not come to its end within {} s; {}",
                    within.as_secs(),
                    said()
                ),
            };
            if has_ended {
                break;
            }
            let why = format!("its kernel stood still; {}", said());
            if begun_anew.len() == EMULATED_STARTS.len() {
                bail!(why);
            }
            begun_anew.push(why);
            output = Said::default();
        }
        let said = || format!("it said:\n{output}\n{}", files.logs());
        let status = fs::read_to_string(files.out().join(STATUS)).unwrap_or_default();
        let status = status.trim().parse::<i32>();
        let status = status.with_context(|| format!("the program told no status; {}", said()))?;
        let output = output.to_string();
        Ok(Ended {
            status,
            output,
            begun_anew,
        })
    }

    /// Starts it, and waits for its program to begin. An emulated kernel that waits for a timer of a processor that has slept through
    /// it may stand still, and QEMU may abort where one of several emulated processors meets a map of memory that another has changed,
    /// as firmware does for adapters (`iotlb_to_section`, QEMU's issue 1921, in 10.0 as well): it is started anew then.
    async fn begin(
        &self,
        files: &Files<'_>,
        archive: &[u8],
        anew: &mut Vec<String>,
    ) -> Result<Began> {
        let initramfs = files.initramfs();
        fs::write(&initramfs, archive)
            .with_context(|| format!("cannot write {}", initramfs.display()))?;
        let began = self.begin_with(files, anew).await?;
        // QEMU has read it; 9 MB that would stay where the caller is killed.
        fs::remove_file(&initramfs)
            .with_context(|| format!("cannot remove {}", initramfs.display()))?;
        Ok(began)
    }

    async fn begin_with(&self, files: &Files<'_>, anew: &mut Vec<String>) -> Result<Began> {
        for within in EMULATED_STARTS {
            let mut child = self.start(files)?;
            let stdout = child.stdout.take();
            let mut words = stdout.context("QEMU was started without an output")?;
            let Ok(first) = tokio::time::timeout(within, next(&mut words)).await else {
                child.kill().await.context("cannot end QEMU")?;
                let console = log_end(&files.console());
                let seconds = within.as_secs();
                anew.push(format!(
                    "no program began within {seconds} s; its console:\n{console}"
                ));
                continue;
            };
            let first = first?;
            if first.is_none() && aborted(&mut child).await? {
                let log = log_end(&files.log());
                anew.push(format!("QEMU aborted before the program began:\n{log}"));
                continue;
            }
            return Ok(Began {
                child,
                words,
                first: first.unwrap_or_default(),
            });
        }
        bail!(
            "no program began in {} starts:\n{}",
            anew.len(),
            anew.join("\n")
        )
    }

    fn start(&self, files: &Files<'_>) -> Result<Child> {
        let log = files.log();
        let log =
            fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let qemu = self.qemu.display();
        ending_with_this_thread(&self.qemu)
            .args(self.arguments(files))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // An interrupt at the terminal is for whoever waits for it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {qemu}"))
    }

    fn arguments(&self, files: &Files<'_>) -> Vec<String> {
        let words = "-nodefaults -no-user-config -no-reboot -display none -machine q35";
        let mut all: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let mut option = |key: &str, value: String| all.extend([key.to_owned(), value]);
        let (accelerator, cpu) = if has_hardware_virtualisation() {
            ("kvm", "host")
        } else {
            ("tcg,thread=multi", "max")
        };
        option("-accel", accelerator.to_owned());
        option("-cpu", cpu.to_owned());
        option("-m", format!("{}M", NODES * NODE_MIB));
        let cpus = NODES * NODE_CPUS;
        option("-smp", format!("{cpus},sockets={NODES},cores={NODE_CPUS}"));
        for node in 0..NODES {
            let (first, last) = (node * NODE_CPUS, (node + 1) * NODE_CPUS - 1);
            let memory = format!("memory-backend-ram,id=memory{node},size={NODE_MIB}M");
            option("-object", memory);
            option(
                "-numa",
                format!("node,memdev=memory{node},cpus={first}-{last}"),
            );
        }
        option("-kernel", path(&self.kernel.image));
        option("-initrd", path(&files.initramfs()));
        // Without what slows an emulated processor down for nothing, and with timers that come again if one is lost.
        let words = "console=ttyS0 quiet panic=-1 rootfstype=ramfs mitigations=off \
                     nohz=off highres=off";
        option("-append", words.to_owned());
        let shared = |path: &str, tag: &str, more: &str| {
            format!("local,path={path},mount_tag={tag},security_model=none,{more}")
        };
        option(
            "-virtfs",
            shared("/", "root", "readonly=on,multidevs=remap"),
        );
        option(
            "-virtfs",
            shared(&path(&files.out()), "out", "readonly=off"),
        );
        option(
            "-chardev",
            format!("file,id=console,path={}", path(&files.console())),
        );
        option("-serial", "chardev:console".to_owned());
        option("-chardev", "stdio,id=words,signal=off".to_owned());
        option("-serial", "chardev:words".to_owned());
        option(
            "-qmp",
            format!("unix:{},server=on,wait=off", path(&files.monitor())),
        );
        for (number, Adapter { name, model, wire }) in self.adapters.iter().enumerate() {
            let mac = hardware_address(number);
            // In a slot of its own: an igb keeps the next ones free for its virtual functions.
            let slot = number + 1;
            option(
                "-device",
                format!("pcie-root-port,id=slot-{name},chassis={slot}"),
            );
            option("-netdev", format!("hubport,id=wire-{name},hubid={wire}"));
            option(
                "-device",
                format!("{model},id={name},bus=slot-{name},netdev=wire-{name},mac={mac}"),
            );
        }
        all
    }
}

/// A program that is killed when this thread ends, also where the whole process is killed: it would go on for as long as its kernel does.
fn ending_with_this_thread(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command.kill_on_drop(true);
    command
}

/// What a machine is made of, and what it leaves.
struct Files<'a> {
    folder: &'a Path,
}

impl Files<'_> {
    fn out(&self) -> PathBuf {
        self.folder.join("out")
    }

    fn initramfs(&self) -> PathBuf {
        self.folder.join("initramfs")
    }

    fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn monitor(&self) -> PathBuf {
        self.folder.join("monitor")
    }

    /// What its kernel and QEMU say.
    fn logs(&self) -> String {
        let console = log_end(&self.console());
        let qemu = log_end(&self.log());
        format!("its console:\n{console}\nQEMU:\n{qemu}")
    }
}

/// As QEMU takes it in a list of options: a comma in a value is written twice.
fn path(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}

/// A machine whose program has said something, or that has ended.
struct Began {
    child: Child,
    words: ChildStdout,
    first: Vec<u8>,
}

/// Keeps what the program says, does what it asks for, and waits until QEMU has ended; or ends it where its kernel stands still: whether it
/// has come to its end.
async fn listen(began: Began, files: &Files<'_>, output: &mut Said) -> Result<bool> {
    let monitor = files.monitor();
    let Began {
        mut child,
        mut words,
        first,
    } = began;
    let mut lines = Assembler::keeping(EMULATED_LINE);
    let mut qmp = None;
    let mut piece = Some(first);
    while let Some(said) = piece {
        for line in lines.feed(&said) {
            if let Some(link) = link::read(&line) {
                set_link(&mut qmp, &monitor, &link).await?;
            }
            output.push(line);
        }
        piece = loop {
            match tokio::time::timeout(EMULATED_SILENCE, next(&mut words)).await {
                Ok(piece) => break piece?,
                Err(_) if stands_still(&files.console()) => {
                    child.kill().await.context("cannot end QEMU")?;
                    return Ok(false);
                }
                Err(_) => {}
            }
        };
    }
    let status = child.wait().await.context("cannot wait for QEMU")?;
    if !status.success() {
        bail!("QEMU failed ({status})");
    }
    Ok(true)
}

/// Whether a kernel says so itself: a timer of one of its processors did not come.
fn stands_still(console: &Path) -> bool {
    log_end(console).contains("timer wakeup didn't happen")
}

/// Whether QEMU, whose output has ended, ended itself by an abort.
async fn aborted(child: &mut Child) -> Result<bool> {
    let status = child.wait().await.context("cannot wait for QEMU")?;
    Ok(status.signal() == Some(Signal::ABORT.as_raw()))
}

async fn next(words: &mut ChildStdout) -> Result<Option<Vec<u8>>> {
    let mut piece = vec![0; EMULATED_PIECE];
    let length = words.read(&mut piece).await.context("cannot hear QEMU")?;
    piece.truncate(length);
    Ok((length > 0).then_some(piece))
}

async fn set_link(qmp: &mut Option<Qmp>, monitor: &Path, link: &Link) -> Result<()> {
    let connected = match qmp.take() {
        Some(connected) => connected,
        None => Qmp::connect(monitor, false, QEMU_START)
            .await
            .context("QEMU's monitor does not answer")?,
    };
    let Link { name, on } = link;
    let order = connected.execute("set_link", json!({ "name": name, "up": on }));
    order
        .await
        .with_context(|| format!("QEMU does not set the link of {name}"))?;
    *qmp = Some(connected);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{KILL, POLL};

    /// Waits until that file of a process has this.
    fn wait_for(pid: u32, file: &str, accept: impl Fn(&str) -> bool) {
        let path = format!("/proc/{pid}/{file}");
        let deadline = std::time::Instant::now() + KILL;
        while !fs::read_to_string(&path).is_ok_and(|text| accept(&text)) {
            assert!(std::time::Instant::now() < deadline, "{path}");
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn what_was_started_ends_with_the_thread_that_started_it() {
        if command::find("setpriv").is_none() {
            println!(
                "skipped, because setpriv is missing; install with: apt-get install util-linux"
            );
            return;
        }
        let started = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = runtime.unwrap();
            let _context = runtime.enter();
            let mut sleep = ending_with_this_thread(Path::new("/bin/sleep"));
            let child = sleep.arg("600").spawn().unwrap();
            let pid = child.id().unwrap();
            // Nobody drops it.
            std::mem::forget(child);
            wait_for(pid, "comm", |name| name == "sleep\n");
            pid
        });
        let pid = started.join().unwrap();
        // A zombie, as nobody waits for it.
        wait_for(pid, "stat", |stat| stat.contains(") Z "));
    }

    #[test]
    fn a_machine_has_its_adapters_on_their_wires_and_nothing_of_this_one_to_write_to() {
        let of = |name: &str, model: &str, wire| Adapter {
            name: name.into(),
            model: model.into(),
            wire,
        };
        let host = EmulatedHost {
            qemu: "/usr/bin/qemu".into(),
            kernel: Kernel::at(Path::new("/boot/vmlinuz")),
            adapters: vec![of("near0", "igb", 1), of("far0", "e1000e", 1)],
            modules: Vec::new(),
        };
        let folder = Path::new("/tmp/a,b");
        let arguments = host.arguments(&Files { folder }).join(" ");
        for words in [
            "-virtfs local,path=/,mount_tag=root,security_model=none,readonly=on",
            "-virtfs local,path=/tmp/a,,b/out,mount_tag=out",
            "-device pcie-root-port,id=slot-near0,chassis=1 -netdev hubport,id=wire-near0,hubid=1 -device igb,id=near0,bus=slot-near0,netdev=wire-near0,",
            "-netdev hubport,id=wire-far0,hubid=1 -device e1000e,id=far0,bus=slot-far0,netdev=wire-far0,",
            "-numa node,memdev=memory1,cpus=2-3",
        ] {
            assert!(arguments.contains(words), "{words}: {arguments}");
        }
        assert_eq!(arguments.matches("readonly=off").count(), 1);
    }
}
