//! An agent that begins what is asked, and answers looks as a script says.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::views::{planned, view};

/// What comes of a look at a run, or at all of them.
#[derive(Clone)]
pub enum Look {
    Is(Value),
    /// With this status.
    Answers(u16, Value),
    ClosesTheConnection,
    /// Nothing is answered, and the connection stays open.
    Hangs,
}

/// The method and path of each request, and its body.
type Calls = Arc<Mutex<Vec<(String, Value)>>>;

pub struct Agent {
    directory: TempDir,
    calls: Calls,
    /// Tells of each look, so that a test can act in the middle.
    looked: Receiver<()>,
}

impl Agent {
    /// Every run begins; looks are answered in turn, the last one for ever.
    pub fn start(looks: Vec<Look>) -> Self {
        Self::playing(Look::Answers(202, view(&Value::Null)), looks)
    }

    /// This comes of each attempt to begin a run.
    pub fn beginning(begin: Look) -> Self {
        Self::playing(begin, Vec::new())
    }

    fn playing(begin: Look, looks: Vec<Look>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let calls = Calls::default();
        let (look, looked) = channel();
        let seen = Arc::clone(&calls);
        std::thread::spawn(move || play(&listener, &begin, looks, &seen, &look));
        Self {
            directory,
            calls,
            looked,
        }
    }

    pub fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    fn drover(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_drover"));
        command
            .args(arguments)
            .env("DROVER_SOCKET", self.path("s"))
            .env_remove("SUDO_USER")
            .env_remove("HOME")
            .env_remove("XDG_STATE_HOME")
            .env("USER", "eve")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Exit code, stdout and stderr.
    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        parts(self.drover(arguments).output().unwrap())
    }

    /// Sends Ctrl-C once the run is being followed, or asked for in vain.
    pub fn run_interrupted(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let child = self.drover(arguments).spawn().unwrap();
        self.looked.recv().unwrap();
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success());
        parts(child.wait_with_output().unwrap())
    }

    pub fn calls(&self) -> Vec<(String, Value)> {
        self.calls.lock().unwrap().clone()
    }
}

/// The one document that a command printed.
pub fn document(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap()
}

fn parts(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn play(
    listener: &UnixListener,
    begin: &Look,
    mut looks: Vec<Look>,
    calls: &Calls,
    looked: &Sender<()>,
) {
    let mut open = Vec::new();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        let (call, body) = read(&stream);
        calls.lock().unwrap().push((call.clone(), body));
        let look = match call.as_str() {
            "POST /v1/runs" => {
                if matches!(begin, Look::Hangs) {
                    let _ = looked.send(());
                }
                begin.clone()
            }
            "POST /v1/plan" => Look::Is(json!({"plan": planned(), "notes": []})),
            call if call.ends_with("/cancel") => Look::Is(view(&json!({"phase": "cancelling"}))),
            _ => {
                let look = looks[0].clone();
                if looks.len() > 1 {
                    looks.remove(0);
                }
                let _ = looked.send(());
                look
            }
        };
        match look {
            Look::Is(value) => answer(stream, 200, &value),
            Look::Answers(status, value) => answer(stream, status, &value),
            Look::ClosesTheConnection => drop(stream),
            Look::Hangs => open.push(stream),
        }
    }
}

fn answer(mut stream: UnixStream, status: u16, value: &Value) {
    let body = value.to_string();
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
    // Whoever was interrupted has gone.
    let _ = stream.write_all((head + &body).as_bytes());
}

/// Method and path, and the body; null where there is none.
fn read(stream: &UnixStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut call = String::new();
    reader.read_line(&mut call).unwrap();
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).unwrap() > 2 {
        let header = line.to_ascii_lowercase();
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let call = call.rsplit_once(' ').map(|(call, _)| call.to_owned());
    (
        call.unwrap_or_default(),
        serde_json::from_slice(&body).unwrap_or_default(),
    )
}
