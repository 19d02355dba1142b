use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// A socket on one host that leads to one on another: what a relay is in the way of, without any of what it does.
pub struct Forward {
    listening: PathBuf,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes that may pass towards the target, and back.
    room: [Option<u64>; 2],
    cut: bool,
    opened: Vec<Opened>,
    sockets: Vec<UnixStream>,
}

/// A connection that was carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The program that opened it.
    pub by: String,
    /// The first four bytes that it wrote.
    pub first: Vec<u8>,
    /// The target was there when it was opened.
    pub reached: bool,
}

impl Forward {
    pub fn new(from: &Path, to: &Path) -> Self {
        let listener = UnixListener::bind(from).unwrap();
        let shared = Arc::new(Shared::default());
        let (own, to) = (Arc::clone(&shared), to.to_owned());
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                carry(&own, socket, &to);
            }
        });
        Self {
            listening: from.to_owned(),
            shared,
        }
    }

    /// Lets so many bytes more pass towards the target.
    pub fn hold_after(&self, bytes: u64) {
        self.change(|state| state.room[0] = Some(bytes));
    }

    /// Lets nothing more pass back from the target.
    pub fn hold_answers(&self) {
        self.change(|state| state.room[1] = Some(0));
    }

    /// Lets everything pass again.
    pub fn release(&self) {
        self.change(|state| state.room = [None, None]);
    }

    /// Ends all connections, and those to come.
    pub fn cut(&self) {
        self.change(|state| {
            state.cut = true;
            for socket in &state.sockets {
                let _ = socket.shutdown(Shutdown::Both);
            }
        });
    }

    /// Lets connections to come pass again.
    pub fn restore(&self) {
        self.change(|state| {
            state.cut = false;
            state.room = [None, None];
            state.opened.clear();
        });
    }

    /// The connections so far, in the order in which they were opened.
    pub fn opened(&self) -> Vec<Opened> {
        self.shared.state.lock().unwrap().opened.clone()
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.shared.state.lock().unwrap());
        self.shared.changed.notify_all();
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.cut();
        let _ = fs::remove_file(&self.listening);
    }
}

fn carry(shared: &Arc<Shared>, from: UnixStream, to: &Path) {
    let by = rustix::net::sockopt::socket_peercred(&from).unwrap();
    let by = fs::read_to_string(format!("/proc/{}/comm", by.pid.as_raw_nonzero()));
    let target = UnixStream::connect(to);
    let mut state = shared.state.lock().unwrap();
    let number = state.opened.len();
    state.opened.push(Opened {
        by: by.unwrap_or_default().trim().to_owned(),
        first: Vec::new(),
        reached: target.is_ok(),
    });
    let Ok(target) = target else { return };
    if state.cut {
        return;
    }
    for socket in [&from, &target] {
        state.sockets.push(socket.try_clone().unwrap());
    }
    let ends = [
        (from.try_clone().unwrap(), target.try_clone().unwrap()),
        (target, from),
    ];
    for (direction, (reader, writer)) in ends.into_iter().enumerate() {
        let own = Arc::clone(shared);
        thread::spawn(move || copy(&own, direction, number, reader, writer));
    }
}

fn copy(
    shared: &Shared,
    direction: usize,
    number: usize,
    mut from: UnixStream,
    mut to: UnixStream,
) {
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut piece).unwrap_or(0);
        if length == 0 || !admit(shared, direction, number, &piece[..length]) {
            break;
        }
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Waits until a piece may pass. Not when all is cut.
fn admit(shared: &Shared, direction: usize, number: usize, piece: &[u8]) -> bool {
    let length = u64::try_from(piece.len()).unwrap();
    let mut state = shared.state.lock().unwrap();
    if direction == 0 && state.opened[number].first.is_empty() {
        state.opened[number].first = piece[..piece.len().min(4)].to_vec();
    }
    loop {
        if state.cut {
            return false;
        }
        match &mut state.room[direction] {
            None => return true,
            Some(room) if *room >= length => {
                *room -= length;
                return true;
            }
            Some(_) => state = shared.changed.wait(state).unwrap(),
        }
    }
}
