//! Screens as people see them.

use drover_api::StatusView;
use jiff::Timestamp;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::draw::draw;
use super::state::{Key, Mode, Seen, Top, View};
use crate::runs::tests::{one_move, view};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn status(rate: u64) -> StatusView {
    let traffic = json!({"sent_bytes": 0, "resent_bytes": 0, "protocol_bytes": 0, "received_bytes": 0,
                         "rate": rate << 20});
    let nic = |name: &str, up: bool| {
        json!({"name": name, "addresses": ["10.0.1.1/24"], "mtu": 9000, "up": up, "speed": 1_000_000_000,
               "loopback": false, "tx_queues": 1, "rx_queues": 1, "rdma": null})
    };
    let migration = |id: u8, vm: &str, phase: &str| {
        json!({
            "id": format!("01938f2e-7b1c-7000-8000-2f8e9d3c4b{id:02x}"), "vm": vm, "source": "a",
            "destination": "b", "role": "source", "phase": phase,
            "started_at": "2027-01-15T08:00:00Z",
            "bytes": {"total": 1 << 30, "transferred": 640 << 20, "remaining": 256 << 20},
            "round": 2, "rate": rate << 20, "time_left_ms": 3100, "traffic": traffic,
            "paths": [], "left_out": [], "notes": [],
            "nics": [{"interface": "eth0", "traffic": traffic, "lanes_up": 2, "credit_bytes": 0,
                      "retransmits": 0}],
        })
    };
    serde_json::from_value(json!({
        "host": {
            "host": "a", "version": "0.1.0", "api_version": 1, "protocol": {"min": 2, "max": 2},
            "memory": {"total": 8u64 << 30, "available": 3u64 << 30}, "cpus": 2, "qemu_binaries": [],
            "interfaces": [nic("eth0", true), nic("eth1", false)],
        },
        "vms": [{"name": "web", "state": "running", "memory": 1 << 30, "vcpus": 2},
                {"name": "db", "state": "failed", "memory": 1 << 30, "vcpus": 2,
                 "problem": "QEMU ended"}],
        "migrations": [migration(1, "old", "completed"), migration(2, "web", "transferring")],
        "peers": [{"host": "b", "api": ["10.0.1.2:7470"], "reachable": true, "version": "0.1.0"},
                  {"host": "c", "api": ["10.0.1.3:7470"], "reachable": false}],
    }))
    .unwrap()
}

fn seen(rate: u64) -> Seen {
    let moves: Value = json!([
        one_move(1, "old", "moved", json!({})),
        one_move(
            2,
            "web",
            "moving",
            json!({"live": {"transferred": 640 << 20,
            "remaining": 256 << 20, "total": 1 << 30, "rate": 100 << 20}})
        ),
        one_move(3, "db", "failed", json!({"cause": "it does not run"})),
    ]);
    Seen {
        status: status(rate),
        run: Ok(Some(view(json!({"round": 1, "moves": moves})))),
    }
}

fn watched() -> Top {
    let mut top = Top::new();
    for (second, rate) in (0..).zip([0, 20, 40, 80, 110, 112, 60, 112]) {
        top.hear(Ok(seen(rate)), at(second));
    }
    top
}

fn screen(top: &Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, top, at(10), true))
        .unwrap();
    terminal.backend().to_string()
}

fn type_in(top: &mut Top, words: &str) {
    for typed in words.chars() {
        assert!(!top.press(Key::Char(typed)), "{words}");
    }
}

#[test]
fn every_view_fits_a_terminal_of_80_columns_and_24_lines() {
    let mut top = watched();
    for view in View::ALL {
        top.view = view;
        insta::assert_snapshot!(view.word(), screen(&top, 80, 24));
    }
    top.press(Key::Char('?'));
    insta::assert_snapshot!("help", screen(&top, 80, 24));
}

#[test]
fn any_size_is_drawn() {
    let mut top = watched();
    for view in View::ALL {
        top.view = view;
        for (width, height) in [(1, 1), (10, 2), (20, 5), (40, 10), (300, 100)] {
            screen(&top, width, height);
        }
    }
}

#[test]
fn an_agent_that_goes_away_is_told_with_what_was_seen_last_and_comes_back() {
    let mut top = watched();
    top.hear(Err("no agent answers at /run/s".to_owned()), at(8));
    top.hear(Err("no agent answers at /run/s".to_owned()), at(9));
    let shown = screen(&top, 110, 24);
    assert!(
        shown.contains("NO ANSWER for 2 s; seen 3 s ago: a"),
        "{shown}"
    );
    assert!(shown.contains("no agent answers at /run/s"), "{shown}");
    assert!(
        shown.contains("UNREACHABLE"),
        "what was known stays: {shown}"
    );
    top.hear(Ok(seen(1)), at(10));
    assert!(!screen(&top, 110, 24).contains("NO ANSWER"));
    let mut fresh = Top::new();
    assert!(screen(&fresh, 80, 24).contains("asking the agent"));
    fresh.hear(Err("it is down".to_owned()), at(9));
    assert!(screen(&fresh, 80, 24).contains("NO ANSWER for 1 s; it is down"));
}

#[test]
fn views_are_chosen_by_number_by_tab_and_by_the_beginning_of_their_name() {
    let mut top = watched();
    top.press(Key::Tab);
    assert_eq!(top.view, View::Guests);
    type_in(&mut top, "5");
    assert_eq!(top.view, View::Run);
    top.press(Key::Tab);
    assert_eq!(top.view, View::Hosts);
    type_in(&mut top, ":mi");
    top.press(Key::Enter);
    assert_eq!((top.view, &top.mode), (View::Migrations, &Mode::Listing));
    type_in(&mut top, ":drain");
    top.press(Key::Enter);
    let message = top.message.clone().unwrap_or_default();
    assert!(message.starts_with("no command \"drain\""), "{message}");
    type_in(&mut top, ":q");
    assert!(top.press(Key::Enter));
    assert!(watched().press(Key::Char('q')));
    assert!(watched().press(Key::Interrupt));
}

#[test]
fn a_filter_leaves_rows_with_its_words_and_the_selection_among_them() {
    let mut top = watched();
    type_in(&mut top, "2G");
    assert_eq!(top.selected, 1);
    type_in(&mut top, "/WEb");
    assert_eq!((top.listing().rows.len(), top.selected), (1, 0));
    top.press(Key::Enter);
    assert!(screen(&top, 80, 24).contains("only rows with \"WEb\""));
    top.press(Key::Escape);
    assert_eq!(top.listing().rows.len(), 2);
    type_in(&mut top, "/qqq");
    assert_eq!(top.listing().rows.len(), 0);
    top.press(Key::Down);
    top.press(Key::Enter);
    top.press(Key::Enter);
    assert_eq!(top.mode, Mode::Listing, "there is nothing to show more of");
}

#[test]
fn a_row_is_shown_with_all_that_is_known_of_it_until_it_is_gone() {
    let mut top = watched();
    for (view, words) in [
        (View::Hosts, "memory"),
        (View::Guests, "process"),
        (View::Nics, "10.0.1.1/24"),
        (View::Migrations, "web from a to b"),
        (View::Run, "old"),
    ] {
        top.view = view;
        top.selected = 0;
        top.press(Key::Enter);
        let shown = screen(&top, 80, 24);
        assert!(shown.contains(words), "{words}: {shown}");
        top.press(Key::Escape);
        assert_eq!(top.mode, Mode::Listing);
    }
    top.mode = Mode::Detail("move 99".to_owned());
    assert!(screen(&top, 80, 24).contains("It is gone."));
}

#[test]
fn without_colours_nothing_on_the_screen_has_one() {
    let mut top = watched();
    top.hear(Err("gone".to_owned()), at(9));
    for colours in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal
            .draw(|frame| draw(frame, &top, at(10), colours))
            .unwrap();
        let cells = terminal.backend().buffer().content();
        let is_coloured = cells
            .iter()
            .any(|cell| cell.fg != ratatui::style::Color::Reset);
        assert_eq!(is_coloured, colours);
    }
}
