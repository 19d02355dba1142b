//! `drover top`: hosts, NICs, guests, migrations and the run, as they are, on a terminal.
//!
//! ```text
//!   agent ─ poll ─▶ Answer ─ hear ─▶ Top ◀─ press ─ Key ◀─ terminal
//!                                     └─ draw ─▶ terminal
//! ```
//! Owns the terminal while it runs, and gives it back as it was, also after a panic or a signal. Never
//! asks an agent for anything but to tell what it knows.

mod draw;
mod listing;
mod state;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _};

use drover_api::Client;
use drover_types::with_sources;
use jiff::Timestamp;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::state::{Answer, Key, Seen, Top};
use crate::cli::Agent;
use crate::command::{Outcome, client};
use crate::failure::{Failure, exit};
use crate::limits::{LOOK, TOP_KEYS, TOP_LOOK};

pub const EXAMPLES: &str = "\
Examples:
  drover top                               what this host and its migrations do
  drover top --cluster lab                 the same of a cluster that you used
  NO_COLOR=1 drover top                    without colours

";

pub const AFTER: &str = "\
Press ? for the keys. Nothing can be changed from here. What is shown is what one agent knows: of
other hosts no more than whether they answer, and runs where they are carried out.";

/// What comes from the terminal.
enum Typed {
    Key(Key),
    Resized,
}

/// Gives the terminal back however this ends.
struct Screen(DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// `drover top`
pub async fn top(agent: &Agent, json: bool) -> Result<Outcome, Failure> {
    if json || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message = "drover top needs a terminal";
        return Err(Failure::new(exit::USAGE, "wrong-usage", message)
            .next("`drover status --json` and `drover run --json` tell the same to programs"));
    }
    let client = client(agent)?;
    // An agent that cannot be asked at all is told in the ordinary way.
    client.host().await.map_err(Failure::of_reading)?;
    let failed = |error: io::Error| Failure::error(format!("cannot use the terminal: {error}"));
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen(ratatui::try_init().map_err(|error| {
        ratatui::restore();
        failed(error)
    })?);
    let shown = show(&mut screen.0, client, colours).await;
    drop(screen);
    shown.map_err(failed)?;
    Ok(Outcome::text(""))
}

async fn show(terminal: &mut DefaultTerminal, client: Client, colours: bool) -> io::Result<()> {
    let (tell, mut answers) = mpsc::channel(1);
    let polling = tokio::spawn(poll(client, tell));
    let mut typed = keys();
    let mut ends = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
    ]
    .into_iter()
    .map(signal)
    .collect::<io::Result<Vec<_>>>()?;
    let mut top = Top::new();
    loop {
        terminal.draw(|frame| draw::draw(frame, &top, Timestamp::now(), colours))?;
        let [terminate, interrupt, hangup] = ends.as_mut_slice() else {
            break;
        };
        tokio::select! {
            Some(answer) = answers.recv() => top.hear(answer, Timestamp::now()),
            key = typed.recv() => match key {
                Some(Typed::Key(key)) if top.press(key) => break,
                Some(Typed::Key(_) | Typed::Resized) => {}
                // The terminal has gone.
                None => break,
            },
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => break,
            // What is told in seconds goes on.
            () = tokio::time::sleep(TOP_LOOK) => {}
        }
    }
    polling.abort();
    Ok(())
}

/// Asks again and again; one answer waits at most.
async fn poll(client: Client, tell: mpsc::Sender<Answer>) {
    loop {
        let answer = ask(&client).await;
        if tell.send(answer).await.is_err() {
            return;
        }
        tokio::time::sleep(TOP_LOOK).await;
    }
}

async fn ask(client: &Client) -> Answer {
    let status = client.status().await;
    let status = status.map_err(|error| with_sources(&error))?;
    let run = client.newest_run().await;
    let run = run.map_err(|error| with_sources(&error));
    Ok(Seen { status, run })
}

/// The terminal can only be waited for by a thread, which ends when nobody wants keys any more.
fn keys() -> mpsc::Receiver<Typed> {
    let (tell, typed) = mpsc::channel(TOP_KEYS);
    std::thread::spawn(move || {
        while !tell.is_closed() {
            let read = event::poll(LOOK).and_then(|there| there.then(event::read).transpose());
            let one = match read {
                Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => {
                    let held = key.modifiers.contains(KeyModifiers::CONTROL);
                    meant(key.code, held).map(Typed::Key)
                }
                Ok(Some(Event::Resize(..))) => Some(Typed::Resized),
                Ok(_) => None,
                Err(_) => return,
            };
            if let Some(one) = one
                && tell.blocking_send(one).is_err()
            {
                return;
            }
        }
    });
    typed
}

fn meant(code: KeyCode, held: bool) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if held => Key::Interrupt,
        KeyCode::Char(_) if held => return None,
        KeyCode::Char(typed) => Key::Char(typed),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return None,
    })
}
