//! Completions and manual pages, generated from the definition of the command line.

use std::io;
use std::path::Path;

use clap_complete::Shell;

use crate::cli;
use crate::command::Outcome;
use crate::failure::Failure;

/// `drover completions …`
pub fn completions(shell: Shell) -> Result<Outcome, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::definition(), "drover", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::error(error.to_string()))?;
    Ok(Outcome::text(script))
}

/// `drover man …`
pub fn man(directory: &Path) -> Result<Outcome, Failure> {
    let failed = |error: io::Error| {
        Failure::error(format!(
            "cannot write manual pages to {}: {error}",
            directory.display()
        ))
        .next("name a directory that can be written")
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let mut command = examples_last(cli::definition().disable_help_subcommand(true));
    command.build();
    clap_mangen::generate_to(command, directory).map_err(failed)?;
    Ok(Outcome::text(format!(
        "manual pages are in {}\n",
        directory.display()
    )))
}

/// Manual pages know only what stands after the options.
fn examples_last(mut command: clap::Command) -> clap::Command {
    let examples = command.get_before_help().map(ToString::to_string);
    let after = command.get_after_help().map(ToString::to_string);
    let texts: Vec<_> = [examples, after].into_iter().flatten().collect();
    if !texts.is_empty() {
        command = command.after_help(texts.join("\n"));
    }
    let names: Vec<_> = command
        .get_subcommands()
        .map(|c| c.get_name().to_owned())
        .collect();
    for name in names {
        command = command.mut_subcommand(name, examples_last);
    }
    command
}
