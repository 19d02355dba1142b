use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use drover_carrier::{Answer, PROTOCOL, State};

use super::super::RelayProcess;
use super::*;

/// What is doubted when this was heard.
fn doubt(heard: Heard) -> Option<Doubt> {
    let directory = tempfile::tempdir().unwrap();
    let known = Arc::new(Known::default());
    let watch = Watch {
        place: Place::at(directory.path().join("relay")),
        child: Arc::default(),
        known: known.clone(),
    };
    watch.heard(heard, &|_| {});
    known.doubt()
}

/// What a relay's process does that ends in order when it was told to close, or does not.
#[derive(Clone, Copy)]
enum Does {
    EndInOrder,
    /// When it is asked for this, before it answers.
    DieAt(&'static str),
    /// Likewise.
    HangAt(&'static str),
    /// When it has answered that it has heard that it is to end.
    HangAtItsEnd,
}

/// Speaks as such a process. It has no record, so that nobody is killed for it.
fn relay(listener: &UnixListener, does: Does) {
    let (socket, _) = listener.accept().unwrap();
    let mut said = &socket;
    let greeting = format!(
        r#"{{"is":"greeting","protocol":{PROTOCOL},"version":"0.0.0","pid":0,"start_time":0}}"#
    );
    writeln!(said, "{greeting}").unwrap();
    let state = State {
        start: None,
        ended: None,
        finished: false,
        paths: Vec::new(),
        limits: Vec::new(),
    };
    let state = serde_json::to_value(Answer::State(Box::new(state))).unwrap();
    let done = serde_json::to_value(Answer::Done).unwrap();
    let mut lines = BufReader::new(&socket).lines().map_while(Result::ok);
    while let Some(line) = lines.next() {
        let asked: serde_json::Value = serde_json::from_str(&line).unwrap();
        let (number, what) = (&asked["number"], &asked["request"]["do"]);
        match does {
            Does::DieAt(this) if what == this => return,
            Does::HangAt(this) if what == this => continue,
            _ => {}
        }
        let answer = if what == "attach" { &state } else { &done };
        let answer =
            serde_json::json!({"is": "answer", "number": number, "result": {"Ok": answer}});
        // Who asked may have gone.
        let _ = writeln!(said, "{answer}");
        if what == "close" {
            if matches!(does, Does::HangAtItsEnd) {
                // Until nobody asks any more.
                lines.by_ref().for_each(drop);
            }
            return;
        }
    }
}

/// Such a process, and what is told of it until it is gone.
fn process(directory: &tempfile::TempDir, does: Does) -> (RelayProcess, Receiver<News>) {
    let place = Place::at(directory.path().join("relay"));
    let listener = place.make().unwrap();
    thread::spawn(move || relay(&listener, does));
    let (tell, told) = channel();
    let hear = move |news| drop(tell.send(news));
    let (process, _) = RelayProcess::connect(&place, None, hear).unwrap();
    (process, told)
}

/// What is doubted of it after this, and how often it is told to have died.
fn after(does: Does, ends: impl FnOnce(&RelayProcess)) -> (Option<Doubt>, usize) {
    let directory = tempfile::tempdir().unwrap();
    let (process, told) = process(&directory, does);
    ends(&process);
    let doubt = process.doubt();
    drop(process);
    let died = |news: &News| matches!(news, News::Died(_));
    // They end when nothing more is heard.
    (doubt, told.iter().filter(died).count())
}

#[test]
fn stored_pages_are_doubted_for_a_chunk_and_for_a_relay_that_died_and_for_nothing_else() {
    let broke = |by| {
        let reason = "broken".to_owned();
        let event = Event::ChannelBroke {
            channel: 1,
            by,
            reason,
        };
        Heard::Event(1, Told::Relay(event))
    };
    assert_eq!(doubt(broke(BrokenBy::Chunk)), Some(Doubt::Chunk));
    assert_eq!(doubt(broke(BrokenBy::Socket)), None);
    assert_eq!(doubt(Heard::Gone), Some(Doubt::Died));
    let alone = Told::Alone {
        lasted: Duration::ZERO,
    };
    assert_eq!(doubt(Heard::Event(1, alone)), None);
    assert_eq!(after(Does::EndInOrder, settled), (None, 0));
}

/// As at the end of a migration, which asks for the last counters.
fn settled(process: &RelayProcess) {
    process.close(false);
    process.settle();
}

#[test]
fn a_relay_that_dies_before_it_hears_that_it_is_to_end_has_died_as_any_other() {
    let died = (Some(Doubt::Died), 1);
    assert_eq!(after(Does::DieAt("close"), settled), died);
    assert_eq!(after(Does::DieAt("report"), RelayProcess::refresh), died);
    assert_eq!(after(Does::DieAt("cut"), RelayProcess::cut), died);
}

#[test]
fn a_relay_that_was_cut_off_or_let_go_of_may_end_as_it_likes() {
    // It is killed, for another takes its place.
    let cut = |process: &RelayProcess| {
        process.cut();
        process.refresh();
    };
    assert_eq!(after(Does::DieAt("close"), cut), (None, 0));
    // It has heard that it is to end, and is killed as it does not do that.
    let told = |process: &RelayProcess| {
        process.close(false);
        process.cut();
    };
    assert_eq!(after(Does::HangAtItsEnd, told), (None, 0));
    // Who lets go of it does not wait for its answer.
    let left = |process: &RelayProcess| process.close(false);
    assert_eq!(after(Does::HangAt("close"), left), (None, 0));
    // Nor who has it end by letting go of it.
    assert_eq!(after(Does::EndInOrder, |_| ()), (None, 0));
}

#[test]
fn a_relay_that_hangs_when_it_is_to_end_is_doubted_and_has_not_ended_unasked() {
    let hung = (Some(Doubt::Died), 0);
    assert_eq!(after(Does::HangAt("close"), settled), hung);
    // It is killed for that.
    assert_eq!(after(Does::HangAt("cut"), RelayProcess::cut), hung);
}
