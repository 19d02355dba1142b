use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use drover_types::Bytes;

use crate::guest::Guest;
use crate::hypervisor::{Start, StartError};
use crate::limits;

/// The files of a guest's runtime directory.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) directory: PathBuf,
    pub(super) qmp: PathBuf,
    pub(super) oob: PathBuf,
    pub(super) stderr: PathBuf,
    /// Written by QEMU itself, and locked while it runs: there is no moment in which it runs and
    /// cannot be found, and two cannot share a directory.
    pub(super) pid: PathBuf,
}

impl Files {
    pub(super) fn new(directory: &Path) -> Self {
        let file = |name| directory.join(name);
        Self {
            directory: directory.to_owned(),
            qmp: file("qmp.sock"),
            oob: file("oob.sock"),
            stderr: file("stderr.log"),
            pid: file("pid"),
        }
    }

    /// Whether the sockets' paths fit in a socket address.
    pub(super) fn check(&self) -> Result<(), StartError> {
        for path in [&self.qmp, &self.oob] {
            let length = path.as_os_str().len();
            if length > limits::SOCKET_PATH_BYTES {
                return Err(StartError::PathTooLong {
                    path: path.clone(),
                    length,
                });
            }
        }
        Ok(())
    }
}

/// Arguments that would take from us what we answer for, and why.
const RESERVED: [(&str, &str); 7] = [
    (
        "daemonize",
        "the process would not be the one that was started",
    ),
    ("incoming", "the agent decides what a guest begins with"),
    ("S", "the agent decides what a guest begins with"),
    ("loadvm", "the agent decides what a guest begins with"),
    (
        "preconfig",
        "the guest would wait for commands that nobody sends",
    ),
    ("pidfile", "the agent finds the guest by a file of its own"),
    ("name", "the definition gives the name"),
];

pub(super) fn check_arguments(guest: &Guest) -> Result<(), StartError> {
    for argument in &guest.args {
        if let Some((_, why)) = RESERVED.iter().find(|(name, _)| is_option(argument, name)) {
            let (guest, argument) = (guest.name.to_string(), argument.clone());
            return Err(StartError::Argument {
                guest,
                argument,
                why,
            });
        }
    }
    Ok(())
}

/// QEMU takes one dash or two.
fn is_option(argument: &str, name: &str) -> bool {
    argument
        .strip_prefix('-')
        .is_some_and(|rest| rest.strip_prefix('-').unwrap_or(rest) == name)
}

/// QEMU's arguments for this guest.
pub(super) fn arguments(guest: &Guest, files: &Files, start: Start) -> Vec<OsString> {
    let mut all: Vec<OsString> = Vec::new();
    let mut add = |option: &str, value: OsString| all.extend([option.into(), value]);
    add("-name", guest.name.as_str().into());
    if let Some(machine) = &guest.machine {
        add("-machine", machine.into());
    }
    add("-m", memory(guest.memory).into());
    add("-smp", guest.vcpus.to_string().into());
    for (id, path) in [("drover-qmp", &files.qmp), ("drover-oob", &files.oob)] {
        let mut socket = OsString::from(format!("socket,id={id},server=on,wait=off,path="));
        socket.push(escaped(path));
        add("-chardev", socket);
        add("-mon", format!("chardev={id},mode=control").into());
    }
    add("-pidfile", files.pid.clone().into());
    let shows =
        |argument: &String| is_option(argument, "display") || is_option(argument, "nographic");
    if !guest.args.iter().any(shows) {
        add("-display", "none".into());
    }
    match start {
        Start::Run => {}
        Start::Paused => all.push("-S".into()),
        Start::Incoming => all.extend(["-S", "-incoming", "defer"].map(OsString::from)),
    }
    all.extend(guest.args.iter().map(OsString::from));
    all
}

/// Whether a process with this command line (`/proc/PID/cmdline`) is QEMU on this directory.
pub(super) fn is_ours(command_line: &str, files: &Files) -> bool {
    let path = escaped(&files.qmp);
    let wanted = path.to_string_lossy();
    command_line.split('\0').any(|argument| {
        argument
            .strip_suffix(&*wanted)
            .is_some_and(|socket| socket.ends_with(",path="))
    })
}

/// QEMU rounds it up to whole pages by itself.
fn memory(memory: Bytes) -> String {
    const MIB: u64 = 1 << 20;
    if memory.0.is_multiple_of(MIB) {
        format!("{}M", memory.0 / MIB)
    } else {
        format!("{}B", memory.0)
    }
}

/// A path as the value of one of QEMU's options, where a comma ends the value unless doubled.
fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for &byte in OsStr::as_bytes(path.as_os_str()) {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(b',');
        }
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(args: &[&str]) -> Guest {
        Guest {
            name: "web1".parse().unwrap(),
            memory: Bytes(64 << 20),
            vcpus: 2,
            binary: "/usr/bin/qemu-system-x86_64".into(),
            machine: Some("q35,accel=tcg".into()),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
        }
    }

    fn line(guest: &Guest, directory: &str, start: Start) -> String {
        let all = arguments(guest, &Files::new(Path::new(directory)), start);
        all.join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_destination_waits_and_a_started_guest_runs() {
        let guest = guest(&["-nodefaults"]);
        let common = "-name web1 -machine q35,accel=tcg -m 64M -smp 2 \
            -chardev socket,id=drover-qmp,server=on,wait=off,path=/r/web1/qmp.sock \
            -mon chardev=drover-qmp,mode=control \
            -chardev socket,id=drover-oob,server=on,wait=off,path=/r/web1/oob.sock \
            -mon chardev=drover-oob,mode=control -pidfile /r/web1/pid -display none";
        assert_eq!(
            line(&guest, "/r/web1", Start::Run),
            format!("{common} -nodefaults")
        );
        assert_eq!(
            line(&guest, "/r/web1", Start::Paused),
            format!("{common} -S -nodefaults")
        );
        let incoming = format!("{common} -S -incoming defer -nodefaults");
        assert_eq!(line(&guest, "/r/web1", Start::Incoming), incoming);
    }

    #[test]
    fn a_display_of_the_guest_replaces_ours() {
        for display in ["-display", "--display", "-nographic"] {
            let all = line(&guest(&[display]), "/r", Start::Run);
            assert!(!all.contains("-display none"), "{all}");
        }
    }

    #[test]
    fn commas_in_the_directory_do_not_end_the_socket_path() {
        let all = line(&guest(&[]), "/r/a,b=c", Start::Run);
        assert!(all.contains("path=/r/a,,b=c/qmp.sock"), "{all}");
        let files = Files::new(Path::new("/r/a,b=c"));
        assert!(is_ours(&all.replace(' ', "\0"), &files));
    }

    #[test]
    fn only_the_process_on_this_directory_is_ours() {
        let ours = line(&guest(&[]), "/r/web1", Start::Run).replace(' ', "\0");
        assert!(is_ours(&ours, &Files::new(Path::new("/r/web1"))));
        for other in ["/r/web", "/web1", "/r/web11"] {
            assert!(!is_ours(&ours, &Files::new(Path::new(other))), "{other}");
        }
        assert!(!is_ours(
            "cat\0/r/web1/qmp.sock",
            &Files::new(Path::new("/r/web1"))
        ));
    }

    #[test]
    fn arguments_that_belong_to_the_agent_are_refused_by_name() {
        for bad in [
            "-daemonize",
            "--daemonize",
            "-S",
            "-incoming",
            "-pidfile",
            "--name",
        ] {
            let refused = check_arguments(&guest(&["-nodefaults", bad]))
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains(bad) && refused.contains("web1"),
                "{refused}"
            );
        }
        check_arguments(&guest(&["-smbios", "type=1", "-nodefaults", "S", "name"])).unwrap();
    }

    #[test]
    fn paths_too_long_for_a_socket_are_refused_with_their_length() {
        let files = Files::new(Path::new(&format!("/{}", "x".repeat(120))));
        let refused = files.check().unwrap_err().to_string();
        assert!(
            refused.contains("130 bytes") && refused.contains("107"),
            "{refused}"
        );
    }

    #[test]
    fn memory_is_given_in_mebibytes_where_it_is_whole() {
        assert_eq!(memory(Bytes(3 << 29)), "1536M");
        assert_eq!(memory(Bytes((1 << 20) + 1)), "1048577B");
    }
}
