//! The QMP client against servers that are not QEMU, or not as they should be.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::time::Duration;

use drover_hypervisor::qmp::{Closed, ConnectError, Events, Notice, Qmp, QmpError};
use drover_hypervisor::{UnixMicros, limits};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);
const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 1, "minor": 2, "major": 11}},
    "capabilities": ["oob"]}}"#;

/// A monitor's socket with nobody at it yet.
struct Fake {
    _dir: TempDir,
    path: PathBuf,
    listener: UnixListener,
}

/// The server's end of one connection.
struct Server(BufReader<UnixStream>);

impl Fake {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("qmp.sock");
        let listener = UnixListener::bind(&path).unwrap();
        Self {
            _dir: dir,
            path,
            listener,
        }
    }

    /// A client that has negotiated, and its server.
    async fn connected(self, oob: bool) -> (Qmp, Server) {
        let path = self.path.clone();
        let serving: JoinHandle<Server> = tokio::spawn(async move {
            let mut server = Server(BufReader::new(self.listener.accept().await.unwrap().0));
            server.greet().await;
            server
        });
        let qmp = Qmp::connect(&path, oob, PATIENCE).await.unwrap();
        (qmp, serving.await.unwrap())
    }

    /// What connecting ends with when the server sends this and nothing more.
    async fn refused(text: &str, close: bool) -> ConnectError {
        let fake = Self::new();
        let accepting = async {
            let (mut stream, _) = fake.listener.accept().await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            if close { None } else { Some(stream) }
        };
        let (refused, stream) = tokio::join!(Qmp::connect(&fake.path, true, SHORT), accepting);
        drop(stream);
        refused.unwrap_err()
    }
}

impl Server {
    async fn greet(&mut self) {
        self.send(&GREETING.replace('\n', " ")).await;
        let negotiation = self.command().await;
        assert_eq!(negotiation["execute"], "qmp_capabilities");
        self.answer(&negotiation, json!({})).await;
    }

    async fn send(&mut self, line: &str) {
        self.0
            .write_all(format!("{line}\r\n").as_bytes())
            .await
            .unwrap();
    }

    async fn answer(&mut self, command: &Value, value: Value) {
        self.send(&json!({"return": value, "id": command["id"]}).to_string())
            .await;
    }

    /// The next command.
    async fn command(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

async fn next(events: &mut Events) -> Notice {
    tokio::time::timeout(PATIENCE, events.next()).await.unwrap()
}

async fn end(events: &mut Events) -> Closed {
    loop {
        if let Notice::Closed(closed) = next(events).await {
            return closed;
        }
    }
}

#[tokio::test]
async fn events_that_nobody_knows_pass_and_commands_go_on() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let serving = async {
        let command = server.command().await;
        server.send(r#"{"event": "BLORP", "data": {"a": [1]}, "timestamp": {"seconds": 1, "microseconds": 2}}"#).await;
        server.send(r#"{"surprise": true}"#).await;
        server.send(r#"{"event": "NO_DATA"}"#).await;
        server.send(r#"{"return": 1, "id": "another's"}"#).await;
        server
            .send(r#"{"error": {"class": "GenericError", "desc": "JSON parse error"}}"#)
            .await;
        server.answer(&command, json!({"done": 1})).await;
        command
    };
    let (answer, command) = tokio::join!(qmp.execute("query-x", json!({"b": 2})), serving);
    assert_eq!(answer, Ok(json!({"done": 1})));
    assert_eq!(
        (&command["execute"], &command["arguments"]),
        (&"query-x".into(), &json!({"b": 2}))
    );
    let Notice::Event(event) = next(&mut events).await else {
        panic!()
    };
    assert_eq!(
        (event.name.as_str(), event.at),
        ("BLORP", UnixMicros(1_000_002))
    );
    assert_eq!(event.data, json!({"a": [1]}));
    let Notice::Event(event) = next(&mut events).await else {
        panic!()
    };
    assert_eq!(
        (event.name.as_str(), event.at, event.data),
        ("NO_DATA", UnixMicros(0), Value::Null)
    );
}

#[tokio::test]
async fn answers_find_their_commands_in_any_order() {
    let (qmp, mut server) = Fake::new().connected(true).await;
    let serving = async {
        let mut commands = Vec::new();
        for _ in 0..3 {
            commands.push(server.command().await);
        }
        for command in commands.iter().rev() {
            let name = command.get("execute").or(command.get("exec-oob")).unwrap();
            server.answer(command, name.clone()).await;
        }
    };
    let (a, b, c, ()) = tokio::join!(
        qmp.execute("a", Value::Null),
        qmp.execute("b", Value::Null),
        qmp.execute_oob("c", Value::Null),
        serving
    );
    assert_eq!((a, b, c), (Ok("a".into()), Ok("b".into()), Ok("c".into())));
}

#[tokio::test]
async fn garbage_ends_the_connection_with_its_beginning_shown() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let serving = async {
        server.command().await;
        server.send("HTTP/1.1 400 Bad Request").await;
    };
    let (answer, ()) = tokio::join!(qmp.execute("query-x", Value::Null), serving);
    let garbage = Closed::Garbage {
        excerpt: "HTTP/1.1 400 Bad Request".into(),
    };
    assert_eq!(
        answer,
        Err(QmpError::Lost {
            command: "query-x".into(),
            source: garbage.clone()
        })
    );
    assert_eq!(end(&mut events).await, garbage);
    assert_eq!(
        end(&mut events).await,
        garbage,
        "every later call says so again"
    );
    assert_eq!(
        end(&mut qmp.events()).await,
        garbage,
        "also to who comes late"
    );
    assert_eq!(qmp.closed(), Some(garbage.clone()));
    let later = qmp.execute("query-x", Value::Null).await;
    assert_eq!(
        later,
        Err(QmpError::Lost {
            command: "query-x".into(),
            source: garbage
        })
    );
}

#[tokio::test]
async fn bytes_that_are_no_text_are_garbage_too() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    server
        .0
        .write_all(&[0xff, 0x00, 0xfe, b'\n'])
        .await
        .unwrap();
    assert!(matches!(
        end(&mut qmp.events()).await,
        Closed::Garbage { .. }
    ));
}

#[tokio::test]
async fn an_endless_line_ends_the_connection_at_the_limit() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let block = vec![b'x'; 1 << 20];
    let mut sent = 0;
    let sending = async {
        // Until the other end is gone, and not much further than the limit.
        while server.0.write_all(&block).await.is_ok() {
            sent += block.len();
            assert!(sent < 2 * limits::LINE_BYTES, "it reads on and on");
        }
    };
    let (closed, ()) = tokio::join!(end(&mut events), sending);
    assert_eq!(closed, Closed::LineTooLong);
}

#[tokio::test]
async fn a_long_answer_below_the_limit_is_read() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let long = "x".repeat(limits::LINE_BYTES / 2);
    let serving = async {
        let command = server.command().await;
        server.answer(&command, json!(long)).await;
    };
    let (answer, ()) = tokio::join!(qmp.execute("query-x", Value::Null), serving);
    assert_eq!(answer.unwrap().as_str().map(str::len), Some(long.len()));
}

#[tokio::test]
async fn a_close_fails_every_command_that_waits() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let serving = async move {
        server.command().await;
        server.command().await;
    };
    let (a, b, ()) = tokio::join!(
        qmp.execute("a", Value::Null),
        qmp.execute("b", Value::Null),
        serving
    );
    for (answer, command) in [(a, "a"), (b, "b")] {
        let lost = QmpError::Lost {
            command: command.into(),
            source: Closed::ByQemu,
        };
        assert_eq!(answer, Err(lost));
    }
    assert_eq!(end(&mut events).await, Closed::ByQemu);
}

#[tokio::test]
async fn silence_is_an_error_after_its_time_and_a_late_answer_does_no_harm() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let late = qmp.execute_within("slow", Value::Null, SHORT).await;
    assert_eq!(
        late,
        Err(QmpError::TimedOut {
            command: "slow".into(),
            within: SHORT
        })
    );
    let slow = server.command().await;
    server.answer(&slow, json!("too late")).await;
    let serving = async {
        let command = server.command().await;
        server.answer(&command, json!("in time")).await;
    };
    let (answer, ()) = tokio::join!(qmp.execute("quick", Value::Null), serving);
    assert_eq!(answer, Ok(json!("in time")));
}

#[tokio::test]
async fn commands_that_nobody_answers_are_bounded() {
    let (qmp, server) = Fake::new().connected(false).await;
    let mut waiting = Vec::new();
    for _ in 0..limits::COMMANDS_WAITING {
        let qmp = qmp.clone();
        waiting.push(tokio::spawn(
            async move { qmp.execute("x", Value::Null).await },
        ));
    }
    tokio::task::yield_now().await;
    let refused = qmp.execute("x", Value::Null).await.unwrap_err();
    assert_eq!(
        refused,
        QmpError::TooManyWaiting {
            command: "x".into()
        }
    );
    drop(server);
    for task in waiting {
        assert!(matches!(task.await.unwrap(), Err(QmpError::Lost { .. })));
    }
}

#[tokio::test]
async fn a_reader_that_is_slow_is_told_how_much_it_missed() {
    let (qmp, mut server) = Fake::new().connected(false).await;
    let mut events = qmp.events();
    let sent = limits::EVENTS_KEPT + 10;
    for number in 0..sent {
        server
            .send(&json!({"event": "E", "data": number}).to_string())
            .await;
    }
    drop(server);
    assert_eq!(end(&mut qmp.events()).await, Closed::ByQemu);
    let Notice::Missed(missed) = next(&mut events).await else {
        panic!()
    };
    assert_eq!(missed, 10);
    for number in missed..sent as u64 {
        let Notice::Event(event) = next(&mut events).await else {
            panic!()
        };
        assert_eq!(event.data, json!(number));
    }
    assert_eq!(next(&mut events).await, Notice::Closed(Closed::ByQemu));
}

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
    let refused = Fake::refused(&format!("{bare}\n"), false).await;
    assert!(matches!(refused, ConnectError::NoOob { .. }), "{refused:?}");
    assert!(refused.to_string().contains("2.11.0"), "{refused}");
}

#[tokio::test]
async fn what_is_no_monitor_is_told_apart_from_what_is_not_there() {
    let refused = Fake::refused("SSH-2.0-OpenSSH_9.2\r\n", false).await;
    assert!(matches!(&refused, ConnectError::NotQmp { excerpt, .. } if excerpt.contains("SSH")));
    let refused = Fake::refused(r#"{"return": {}}"#, true).await;
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
    let refused = Fake::refused("{\"event\": \"STOP\"}\n", false).await;
    assert!(
        matches!(refused, ConnectError::NotQmp { .. }),
        "{refused:?}"
    );
    let refused = Fake::refused("", false).await;
    assert!(
        matches!(refused, ConnectError::NoGreeting { .. }),
        "{refused:?}"
    );
    assert!(refused.to_string().contains("another client"), "{refused}");
    let refused = Fake::refused("{\"QMP\": {}}\n", true).await;
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
        let (refused, _server) = tokio::join!(Qmp::connect(&fake.path, true, SHORT), serving);
        let ConnectError::Negotiation { source, .. } = refused.unwrap_err() else {
            panic!()
        };
        match answer {
            Some(_) => assert!(matches!(*source, QmpError::Refused { .. }), "{source:?}"),
            None => assert!(matches!(*source, QmpError::TimedOut { .. }), "{source:?}"),
        }
    }
}
