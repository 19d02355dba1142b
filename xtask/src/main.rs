//! Checks of this repository, and the one command that runs all of them and every test.
//!
//! Needs nothing but cargo: a tool that is not installed is reported as skipped, because.

mod arrows;
mod bounds;
mod docs;
mod notices;
mod purity;
mod report;
mod runner;
mod skips;
mod steps;
mod text;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
cargo run -p xtask -- COMMAND

  check   crate arrows, purity of pure crates, documentation, markers: reads files only
  lint    formatting, clippy, check, licences, shell scripts
  test    lint, then every test; the runner's own summary comes last
  notices FILE
          the libraries in the programs, with what their licences ask to be given along
  contain TEST [ARGUMENTS]
          one test; what it leaves running is ended";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["check"] => check(),
        ["lint"] => steps::lint(),
        ["test"] => runner::test(),
        ["contain", test @ ..] => match runner::contain::run(test) {
            Ok(code) => std::process::exit(code),
            Err(error) => Err(error),
        },
        ["notices", file] => notices::write(Path::new(file)).map(|()| true),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that can be judged from the files alone. `false` when something is wrong.
fn check() -> Result<bool> {
    let root = tree::root();
    let files = tree::files(&root)?;
    let mut report = report::Report::default();
    arrows::check(&root, &mut report)?;
    purity::check(&files, &mut report);
    bounds::check(&files, &mut report);
    skips::check(&files, &mut report);
    text::check(&files, &mut report);
    docs::check(&files, &mut report);
    report.print();
    Ok(report.passed())
}
