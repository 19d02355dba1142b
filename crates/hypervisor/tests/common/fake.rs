//! Servers at a monitor's socket that are no QEMU.

use std::path::PathBuf;
use std::time::Duration;

use drover_hypervisor::qmp::{Closed, ConnectError, Events, Notice, Qmp};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// For what is to come. What is to stay away is waited for only shortly.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const SHORT: Duration = Duration::from_millis(200);

pub const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"micro": 1, "minor": 2, "major": 11}},
    "capabilities": ["oob"]}}"#;

/// A monitor's socket with nobody at it yet.
pub struct Fake {
    _dir: TempDir,
    pub path: PathBuf,
    pub listener: UnixListener,
}

/// The server's end of one connection.
pub struct Server(pub BufReader<UnixStream>);

impl Fake {
    pub fn new() -> Self {
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
    pub async fn connected(self, oob: bool) -> (Qmp, Server) {
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
    pub async fn refused(text: &str, close: bool, within: Duration) -> ConnectError {
        let fake = Self::new();
        let accepting = async {
            let (mut stream, _) = fake.listener.accept().await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            if close { None } else { Some(stream) }
        };
        let (refused, stream) = tokio::join!(Qmp::connect(&fake.path, true, within), accepting);
        drop(stream);
        refused.unwrap_err()
    }
}

impl Server {
    pub async fn greet(&mut self) {
        self.send(&GREETING.replace('\n', " ")).await;
        let negotiation = self.command().await;
        assert_eq!(negotiation["execute"], "qmp_capabilities");
        self.answer(&negotiation, json!({})).await;
    }

    pub async fn send(&mut self, line: &str) {
        self.0
            .write_all(format!("{line}\r\n").as_bytes())
            .await
            .unwrap();
    }

    pub async fn answer(&mut self, command: &Value, value: Value) {
        self.send(&json!({"return": value, "id": command["id"]}).to_string())
            .await;
    }

    /// The next command.
    pub async fn command(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

/// The next notice.
pub async fn next(events: &mut Events) -> Notice {
    tokio::time::timeout(PATIENCE, events.next()).await.unwrap()
}

/// How the connection ended, whatever comes before.
pub async fn end(events: &mut Events) -> Closed {
    loop {
        if let Notice::Closed(closed) = next(events).await {
            return closed;
        }
    }
}
