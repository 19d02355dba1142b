//! A key-value store: Redis, asked over its own socket in its own protocol (RESP 2), many requests
//! at once.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use drover_probe::held::Keeper;

use super::{patiently, start};

/// As in Debian's package, but for what would write to a disk or listen on the network.
const ARGUMENTS: [&str; 11] = [
    "/usr/bin/redis-server",
    "--port",
    "0",
    "--unixsocket",
    SOCKET,
    "--save",
    "",
    "--appendonly",
    "no",
    "--dir",
    "/",
];

const SOCKET: &str = "/redis.sock";

/// Requests are sent in pieces of so many bytes. Their answers, 5 bytes each, fit the socket.
const SEND: usize = 64 << 10;

/// A running Redis.
pub struct Store {
    answers: BufReader<UnixStream>,
    requests: Vec<u8>,
    unanswered: usize,
    process: Child,
}

impl Store {
    /// Starts it.
    ///
    /// # Errors
    /// It does not start, or does not listen in time.
    pub fn start() -> io::Result<Self> {
        let [program, arguments @ ..] = ARGUMENTS;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let process = start(command.stdout(Stdio::null()))?;
        let socket = patiently(|| UnixStream::connect(SOCKET))?;
        Ok(Self {
            answers: BufReader::new(socket),
            requests: Vec::new(),
            unanswered: 0,
            process,
        })
    }

    fn request(&mut self, words: &[&str]) {
        let _ = write!(self.requests, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.requests, "${}\r\n{word}\r\n", word.len());
        }
        self.unanswered += 1;
    }

    fn send(&mut self) -> io::Result<()> {
        self.answers.get_mut().write_all(&self.requests)?;
        self.requests.clear();
        Ok(())
    }

    /// The line of an answer, without its end.
    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let ended = self.process.try_wait()?;
            return Err(io::Error::other(format!("Redis ended: {ended:?}")));
        }
        Ok(line.trim_end().to_owned())
    }

    /// A value; `None` where the store has none.
    fn value(&mut self) -> io::Result<Option<Vec<u8>>> {
        let head = self.line()?;
        let length = head.strip_prefix('$').and_then(|n| n.parse::<i64>().ok());
        let Some(length) = length else {
            return Err(io::Error::other(head));
        };
        let Ok(length) = usize::try_from(length) else {
            return Ok(None);
        };
        let mut value = vec![0; length + 2];
        self.answers.read_exact(&mut value)?;
        value.truncate(length);
        Ok(Some(value))
    }
}

fn key(number: usize) -> String {
    format!("document:{number}")
}

impl Keeper for Store {
    fn put(&mut self, number: usize, document: &str) -> io::Result<()> {
        self.request(&["SET", &key(number), document]);
        if self.requests.len() > SEND {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        while self.unanswered > 0 {
            self.unanswered -= 1;
            let answer = self.line()?;
            if answer != "+OK" {
                return Err(io::Error::other(answer));
            }
        }
        Ok(())
    }

    fn compare(&mut self, from: usize, documents: &[String]) -> io::Result<Vec<bool>> {
        self.flush()?;
        for number in from..from + documents.len() {
            self.request(&["GET", &key(number)]);
        }
        self.send()?;
        self.unanswered = 0;
        let same = |document: &String| Ok(self.value()?.as_deref() == Some(document.as_bytes()));
        // All answers are read, so that one that is an error leaves none to the next requests.
        let answers: Vec<io::Result<bool>> = documents.iter().map(same).collect();
        answers.into_iter().collect()
    }
}
