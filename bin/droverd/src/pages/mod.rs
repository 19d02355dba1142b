//! Manual pages: `droverd(8)` from the definition of the command line, those of the files that it reads from the
//! commented examples that come with it.

mod example;

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::Arguments;

/// Files that the agent reads: the page, what it is about, and the example.
const FILES: [(&str, &str, &str); 2] = [
    (
        "droverd.toml",
        "configuration of the host agent of Drover",
        include_str!("../../../../packaging/droverd.toml"),
    ),
    (
        "drover-vm.toml",
        "the definition of one guest of Drover",
        include_str!("../../../../packaging/vm.toml"),
    ),
];

const PLACES: [(&str, &str); 4] = [
    (
        "/etc/drover/droverd.toml",
        "The configuration: droverd.toml(5).",
    ),
    (
        "/etc/drover/vms/NAME.toml",
        "Definitions of guests: drover-vm.toml(5).",
    ),
    (
        "/var/lib/drover",
        "What must outlive a reboot: journals of migrations, suspended guests, keys and certificates.",
    ),
    (
        "/run/drover",
        "Sockets and records of running guests. They are needed as long as these run.",
    ),
];

/// Writes all pages into `man5` and `man8` of a directory; what is not there is made.
///
/// # Errors
/// A file cannot be written.
pub fn write(directory: &Path) -> anyhow::Result<()> {
    put(directory, "man8/droverd.8", &program()?)?;
    for (name, about, text) in FILES {
        let page = example::page(name, about, text).render();
        put(directory, &format!("man5/{name}.5"), page.as_bytes())?;
    }
    Ok(())
}

fn put(directory: &Path, name: &str, page: &[u8]) -> anyhow::Result<()> {
    let path = directory.join(name);
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(&path, page))
        .with_context(|| format!("cannot write the manual page {}", path.display()))
}

fn program() -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(examples_last(Arguments::command()))
        .section("8")
        .render(&mut page)?;
    let mut more = Roff::new();
    more.control("SH", ["FILES"]);
    for (place, what) in PLACES {
        more.control("TP", [])
            .text([bold(place)])
            .text([roman(what)]);
    }
    more.control("SH", ["SEE ALSO"]).text([roman(
        "drover(1), droverd.toml(5), drover-vm.toml(5), drover-doctor(1)",
    )]);
    more.to_writer(&mut page)?;
    Ok(page)
}

/// Manual pages know only what stands after the options.
fn examples_last(command: Command) -> Command {
    let texts = [command.get_before_help(), command.get_after_help()];
    let texts: Vec<_> = texts
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    command
        .after_help(texts.join("\n"))
        .disable_help_subcommand(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_of_the_agent_and_of_each_file_that_it_reads() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path()).unwrap();
        let page = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let agent = page("man8/droverd.8");
        for part in ["Examples:", "check\\-config", "SIGTERM", "/var/lib/drover"] {
            assert!(agent.contains(part), "{part}:\n{agent}");
        }
        // For the agent's own use.
        assert!(!agent.contains("end\\-with"), "{agent}");
        assert!(page("man5/droverd.toml.5").contains("outage_limit_s"));
        assert!(page("man5/drover-vm.toml.5").contains("cannot_move"));
    }
}
