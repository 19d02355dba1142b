//! libvirt's own protocol between a program and a libvirtd, of which single answers are held back or changed.
//!
//! Source: `src/rpc/virnetprotocol.x` and `src/remote/remote_protocol.x` of libvirt. A message is its length, which counts itself,
//! a header of six numbers (program, version, procedure, type, serial, status) and what the procedure says, all big-endian.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

/// The program whose procedures these are (`REMOTE_PROGRAM`). Keepalive is another one over the same connection, with numbers of its
/// own.
const REMOTE_PROGRAM: u32 = 0x2000_8086;

/// Of `remote_procedure`.
pub const CONNECT_CLOSE: u32 = 2;
pub const CONNECT_GET_VERSION: u32 = 4;
const DOMAIN_GET_INFO: u32 = 16;
const CONNECT_SUPPORTS_FEATURE: u32 = 60;
pub const DOMAIN_SUSPEND: u32 = 34;
pub const DOMAIN_ABORT_JOB: u32 = 164;
pub const DOMAIN_BLOCK_JOB_ABORT: u32 = 237;

/// Of `virDrvFeature`.
const PROGRAM_KEEPALIVE: u8 = 10;

/// What becomes of an answer.
#[derive(Debug, Clone, Copy)]
pub enum Treatment {
    /// It does not come, until it is let go.
    Held,
    /// It becomes this error of libvirt's, by its number.
    Refused(u8),
    /// It becomes "no".
    No,
}

/// A socket that leads to a libvirtd.
pub struct Between {
    folder: tempfile::TempDir,
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// How often it was connected to.
    opened: usize,
    /// By the name of the domain.
    info: HashMap<String, Treatment>,
    no_keepalive: bool,
    /// Procedures whose answers are held.
    holds: HashSet<u32>,
    held: Vec<(UnixStream, Vec<u8>)>,
}

impl Between {
    pub fn new(libvirtd: &Path) -> Self {
        let folder = tempfile::TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let shared = Arc::new(Mutex::new(State::default()));
        let (own, to) = (Arc::clone(&shared), libvirtd.to_owned());
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                own.lock().unwrap().opened += 1;
                if let Ok(server) = UnixStream::connect(&to) {
                    carry(&own, client, server);
                }
            }
        });
        Self { folder, shared }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn opened(&self) -> usize {
        self.shared.lock().unwrap().opened
    }

    /// From now on, what is told of a domain's state.
    pub fn treat(&self, domain: &str, treatment: Treatment) {
        let mut state = self.shared.lock().unwrap();
        state.info.insert(domain.to_owned(), treatment);
    }

    /// From now on, no answer of this procedure comes.
    pub fn hold(&self, procedure: u32) {
        self.shared.lock().unwrap().holds.insert(procedure);
    }

    /// Answers that are held now.
    pub fn held(&self) -> usize {
        self.shared.lock().unwrap().held.len()
    }

    /// From now on, whether libvirtd answers keepalive is answered with no.
    pub fn deny_keepalive(&self) {
        self.shared.lock().unwrap().no_keepalive = true;
    }

    /// Everything is told as it is, and what was held comes.
    pub fn release(&self) {
        let mut state = self.shared.lock().unwrap();
        state.info.clear();
        state.holds.clear();
        for (mut client, message) in state.held.drain(..) {
            let _ = client.write_all(&message);
        }
    }
}

fn carry(shared: &Arc<Mutex<State>>, client: UnixStream, server: UnixStream) {
    let treated: Arc<Mutex<HashMap<u32, Treatment>>> = Arc::default();
    let (asks, answers) = (Arc::clone(&treated), treated);
    let (own, state) = (Arc::clone(shared), Arc::clone(shared));
    let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        while let Some(message) = message(&mut from) {
            if let Some(treatment) = treatment(&own.lock().unwrap(), &message) {
                asks.lock().unwrap().insert(number(&message, 20), treatment);
            }
            let _ = to.write_all(&message);
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut from, mut to) = (server, client);
    thread::spawn(move || {
        while let Some(message) = message(&mut from) {
            let treatment = answers.lock().unwrap().remove(&number(&message, 20));
            // One at a time writes to the client: what is let go comes from another thread.
            let mut state = state.lock().unwrap();
            let message = match treatment {
                None => message,
                Some(Treatment::Held) => {
                    state.held.push((to.try_clone().unwrap(), message));
                    continue;
                }
                Some(Treatment::Refused(error)) => refused(&message, error),
                Some(Treatment::No) => no(message),
            };
            let _ = to.write_all(&message);
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

fn message(from: &mut UnixStream) -> Option<Vec<u8>> {
    let mut message = vec![0; 4];
    from.read_exact(&mut message).ok()?;
    let length = usize::try_from(number(&message, 0)).unwrap();
    message.resize(length, 0);
    from.read_exact(&mut message[4..]).ok()?;
    Some(message)
}

fn number(message: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(message[at..at + 4].try_into().unwrap())
}

/// What is to become of the answer to this call.
fn treatment(state: &State, call: &[u8]) -> Option<Treatment> {
    if number(call, 4) != REMOTE_PROGRAM {
        return None;
    }
    match number(call, 12) {
        procedure if state.holds.contains(&procedure) => Some(Treatment::Held),
        CONNECT_SUPPORTS_FEATURE
            if state.no_keepalive && call[28..] == [0, 0, 0, PROGRAM_KEEPALIVE] =>
        {
            Some(Treatment::No)
        }
        DOMAIN_GET_INFO => {
            let length = usize::try_from(number(call, 28)).unwrap();
            let name = std::str::from_utf8(&call[32..32 + length]).unwrap();
            state.info.get(name).copied()
        }
        _ => None,
    }
}

/// An answer that says 0.
fn no(mut answer: Vec<u8>) -> Vec<u8> {
    answer[28..].fill(0);
    answer
}

/// A `remote_error` in place of an answer.
fn refused(answer: &[u8], error: u8) -> Vec<u8> {
    const WORDS: &[u8; 8] = b"not this";
    let mut message = answer[..28].to_vec();
    // Its status is "error".
    message[27] = 1;
    let numbers = |message: &mut Vec<u8>, numbers: &[u32]| {
        numbers
            .iter()
            .for_each(|number| message.extend(number.to_be_bytes()));
    };
    // Code, part of libvirt (QEMU), words that are there, then level (error), no domain, no texts, two numbers, no network.
    numbers(&mut message, &[u32::from(error), 10, 1, 8]);
    message.extend(WORDS);
    numbers(&mut message, &[2, 0, 0, 0, 0, 0, 0, 0]);
    let length = u32::try_from(message.len()).unwrap();
    message[..4].copy_from_slice(&length.to_be_bytes());
    message
}
