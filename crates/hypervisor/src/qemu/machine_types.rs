use std::path::Path;
use std::process::{Command, Stdio};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use crate::hypervisor::{InspectError, MachineType};
use crate::limits;
use crate::qmp::excerpt;

/// Asks a binary with `-machine help`.
pub(super) async fn ask(command: Command, binary: &Path) -> Result<Vec<MachineType>, InspectError> {
    let unusable = |source| InspectError::Binary {
        binary: binary.to_owned(),
        source,
    };
    let mut command = tokio::process::Command::from(command);
    let mut child = command
        .args(["-machine", "help"])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(unusable)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let asking = async {
        let most = limits::MACHINE_HELP_BYTES;
        tokio::join!(start_of(stdout, most), start_of(stderr, most), child.wait())
    };
    let (printed, complained, status) =
        timeout(limits::MACHINE_HELP, asking)
            .await
            .map_err(|_| InspectError::NoAnswer {
                binary: binary.to_owned(),
                within: limits::MACHINE_HELP,
            })?;
    let status = status.map_err(unusable)?;
    let types = parse(&printed);
    if status.success() && !types.is_empty() {
        return Ok(types);
    }
    let printed = if complained.trim().is_empty() {
        printed
    } else {
        complained
    };
    Err(InspectError::NotQemu {
        binary: binary.to_owned(),
        status: status.to_string(),
        printed: excerpt(printed.trim()),
    })
}

/// The beginning of what it prints, as text. The rest is read and dropped, so that it can end.
pub(super) async fn start_of(output: Option<impl AsyncRead + Unpin>, most: u64) -> String {
    let Some(mut output) = output else {
        return String::new();
    };
    let mut bytes = Vec::new();
    let read = (&mut output).take(most).read_to_end(&mut bytes).await;
    if let Err(error) = read {
        tracing::debug!(%error, "output lost");
    }
    drop(tokio::io::copy(&mut output, &mut tokio::io::sink()).await);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Understands the list: after a heading, a name and a description on each line. Source:
/// `machine_help_func` in QEMU's `system/vl.c`.
fn parse(printed: &str) -> Vec<MachineType> {
    let mut lines = printed.lines();
    if !lines.any(|line| line.starts_with("Supported machines are")) {
        return Vec::new();
    }
    lines.filter_map(machine_type).collect()
}

fn machine_type(line: &str) -> Option<MachineType> {
    let (name, description) = line.split_once(' ').unwrap_or((line, ""));
    let alias_of = description
        .split_once("(alias of ")
        .and_then(|(_, rest)| rest.split_once(')'))
        .map(|(name, _)| name.to_owned());
    (!name.is_empty()).then(|| MachineType {
        name: name.to_owned(),
        alias_of,
        default: description.contains("(default)"),
        deprecated: description.contains("(deprecated)"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_aliases_and_the_default_are_read() {
        let types = parse(
            "Supported machines are:\n\
             microvm              microvm (i386)\n\
             pc                   Standard PC (i440FX + PIIX, 1996) (alias of pc-i440fx-10.0)\n\
             pc-i440fx-10.0       Standard PC (i440FX + PIIX, 1996) (default)\n\
             pc-i440fx-2.6        Standard PC (i440FX + PIIX, 1996) (deprecated)\n\
             none                 empty machine\n\n",
        );
        let names: Vec<&str> = types.iter().map(|kind| kind.name.as_str()).collect();
        assert_eq!(
            names,
            ["microvm", "pc", "pc-i440fx-10.0", "pc-i440fx-2.6", "none"]
        );
        assert_eq!(types[1].alias_of.as_deref(), Some("pc-i440fx-10.0"));
        assert!(types[2].default && types[3].deprecated && !types[0].default);
    }

    #[test]
    fn what_is_no_list_has_no_types() {
        for text in [
            "",
            "usage: cat [FILE]",
            "Supported machines are:",
            "\u{fffd}\n\n",
        ] {
            assert_eq!(parse(text), [], "{text:?}");
        }
    }
}
