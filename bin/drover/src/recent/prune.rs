//! `drover recent prune`: forgets clusters, after somebody has said yes.

use std::io::{BufRead, IsTerminal as _};

use drover_types::HostName;
use jiff::Timestamp;

use super::book::Known;
use super::file::Place;
use super::look::State;
use super::{look_at_all, no_such, show, unusable};
use crate::command::Outcome;
use crate::failure::{Failure, exit};

/// `drover recent prune …`
pub async fn prune(place: &Place, names: &[HostName], yes: bool) -> Result<Outcome, Failure> {
    let found = look_at_all(place).await?;
    let going = chosen(found, names)?;
    if going.is_empty() {
        let text = "nothing to forget: every cluster answers, or refuses you\n";
        return Outcome::new(text, "forgotten", &Vec::<HostName>::new());
    }
    let shown = show::rows(&going, Timestamp::now());
    if !yes {
        confirm(&shown, going.len())?;
    }
    let looked_at: Vec<Known> = going.into_iter().map(|(known, _)| known).collect();
    let removed = place.change(|book| {
        let gone = book.remove(&looked_at);
        (!gone.is_empty(), gone)
    });
    let gone = removed.map_err(unusable)?;
    let names: Vec<&str> = gone.iter().map(HostName::as_str).collect();
    let said = match names.as_slice() {
        [] => "nothing was forgotten: they were used meanwhile\n".to_owned(),
        names => format!("forgotten: {}\n", names.join(", ")),
    };
    let text = if yes { shown + &said } else { said };
    Outcome::new(text, "forgotten", &gone)
}

/// Those that were named, or all that are gone.
fn chosen(found: Vec<(Known, State)>, names: &[HostName]) -> Result<Vec<(Known, State)>, Failure> {
    let is_known = |name: &&HostName| found.iter().any(|(known, _)| known.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Err(no_such(unknown));
    }
    let is_chosen = |(known, state): &(Known, State)| {
        let is_gone = matches!(state, State::Unreachable { .. } | State::Replaced { .. });
        match names {
            [] => is_gone,
            names => names.contains(&known.name),
        }
    };
    Ok(found.into_iter().filter(is_chosen).collect())
}

/// Shows what goes and waits for a yes; without a terminal nobody can say it.
fn confirm(shown: &str, count: usize) -> Result<(), Failure> {
    let (input, output) = (std::io::stdin(), std::io::stderr());
    if !input.is_terminal() || !output.is_terminal() {
        let message =
            format!("{count} of your clusters would be forgotten, and nobody can be asked");
        return Err(Failure::new(exit::REFUSED, "not-confirmed", message)
            .said(shown)
            .next("`drover recent prune --yes` does it without asking"));
    }
    let s = if count == 1 { "" } else { "s" };
    eprint!("{shown}\nForget {count} cluster{s}? [y/N] ");
    if says_yes(input.lock()) {
        return Ok(());
    }
    Err(Failure::new(
        exit::CANCELLED,
        "cancelled",
        "nothing was forgotten",
    ))
}

fn says_yes(mut input: impl BufRead) -> bool {
    let mut answer = String::new();
    let read = input.read_line(&mut answer);
    read.is_ok() && ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        for yes in ["y\n", "Yes\n", "YES"] {
            assert!(says_yes(yes.as_bytes()), "{yes:?}");
        }
        for no in ["", "\n", "n\n", "yesterday\n", "no\n"] {
            assert!(!says_yes(no.as_bytes()), "{no:?}");
        }
    }
}
