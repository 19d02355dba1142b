//! The QMP client against servers that do not behave.

// Panics are a test's assertions, also in the parts that tests share.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::fake::{Fake, SHORT, end, next};
use drover_hypervisor::qmp::{Closed, Notice, QmpError};
use drover_hypervisor::{UnixMicros, limits};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

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
