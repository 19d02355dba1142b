//! Connecting to what may be a monitor, and letting go of it.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::fake::{Fake, GREETING, PATIENCE, SHORT, Server, end};
use drover_hypervisor::qmp::{Closed, ConnectError, Qmp, QmpError};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::test]
async fn letting_go_of_the_last_handle_frees_the_monitor() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let clone = qmp.clone();
    drop(qmp);
    assert_eq!(clone.closed(), None);
    drop(clone);
    assert_eq!(end(&mut events).await, Closed::ByUs);
    let mut rest = String::new();
    let read = tokio::time::timeout(PATIENCE, server.0.read_line(&mut rest))
        .await
        .unwrap();
    assert_eq!(read.unwrap(), 0, "{rest}");
}

#[tokio::test]
async fn a_monitor_without_out_of_band_commands_is_refused_where_they_are_needed() {
    let bare = r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 11, "major": 2}}}}"#;
    let refused = Fake::refused(&format!("{bare}\n"), false, PATIENCE).await;
    assert!(matches!(refused, ConnectError::NoOob { .. }), "{refused:?}");
    assert!(refused.to_string().contains("2.11.0"), "{refused}");
}

#[tokio::test]
async fn what_is_no_monitor_is_told_apart_from_what_is_not_there() {
    let refused = Fake::refused("SSH-2.0-OpenSSH_9.2\r\n", false, PATIENCE).await;
    assert!(matches!(&refused, ConnectError::NotQmp { excerpt, .. } if excerpt.contains("SSH")));
    let refused = Fake::refused(r#"{"return": {}}"#, true, PATIENCE).await;
    assert!(
        matches!(
            refused,
            ConnectError::Lost {
                source: Closed::ByQemu,
                ..
            }
        ),
        "{refused:?}"
    );
    for silent in ["", "{\"event\": \"STOP\"}\n"] {
        let refused = Fake::refused(silent, false, SHORT).await;
        assert!(
            matches!(refused, ConnectError::NoGreeting { .. }),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("another client"), "{refused}");
    }
    let refused = Fake::refused("{\"QMP\": {}}\n", true, PATIENCE).await;
    assert!(matches!(refused, ConnectError::NoOob { .. }), "{refused:?}");

    let dir = TempDir::new().unwrap();
    let refused = Qmp::connect(&dir.path().join("none"), false, SHORT)
        .await
        .unwrap_err();
    assert!(
        matches!(refused, ConnectError::NotThere { .. }),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_guest_that_starts_to_run_may_be_told_of_before_the_greeting() {
    let fake = Fake::new();
    let serving = async {
        let mut server = Server(BufReader::new(fake.listener.accept().await.unwrap().0));
        server.send(r#"{"event": "RESUME"}"#).await;
        server.greet().await;
        server
    };
    let (connected, _server) = tokio::join!(Qmp::connect(&fake.path, true, PATIENCE), serving);
    assert_eq!(connected.unwrap().version().to_string(), "11.2.1");
}

#[tokio::test]
async fn a_negotiation_that_is_refused_or_never_answered_is_told() {
    for answer in [Some(json!({"class": "GenericError", "desc": "no"})), None] {
        let fake = Fake::new();
        let serving = async {
            let mut server = Server(BufReader::new(fake.listener.accept().await.unwrap().0));
            server.send(&GREETING.replace('\n', " ")).await;
            let command = server.command().await;
            assert_eq!(command["arguments"], json!({"enable": ["oob"]}));
            if let Some(error) = &answer {
                server
                    .send(&json!({"error": error, "id": command["id"]}).to_string())
                    .await;
            }
            server
        };
        let within = if answer.is_some() { PATIENCE } else { SHORT };
        let (refused, _server) = tokio::join!(Qmp::connect(&fake.path, true, within), serving);
        let ConnectError::Negotiation { source, .. } = refused.unwrap_err() else {
            panic!()
        };
        match answer {
            Some(_) => assert!(matches!(*source, QmpError::Refused { .. }), "{source:?}"),
            None => assert!(matches!(*source, QmpError::TimedOut { .. }), "{source:?}"),
        }
    }
}
