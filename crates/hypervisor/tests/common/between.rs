//! A connection between two hypervisors that can be told to lose what goes over it, and to break.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Takes what comes to one socket to another, both ways.
#[derive(Debug, Default)]
pub struct Between {
    loses: AtomicBool,
    ends: Mutex<Vec<UnixStream>>,
}

impl Between {
    /// Listens at `from` for one connection, and takes that to `to`.
    pub fn new(from: &Path, to: &Path) -> Arc<Self> {
        let listener = UnixListener::bind(from).unwrap();
        let (between, to) = (Arc::new(Self::default()), to.to_owned());
        let carrying = Arc::clone(&between);
        thread::spawn(move || {
            let (source, _) = listener.accept().unwrap();
            let destination = UnixStream::connect(to).unwrap();
            let ends = [&source, &destination].map(|end| end.try_clone().unwrap());
            carrying.ends.lock().unwrap().extend(ends);
            let back = (
                destination.try_clone().unwrap(),
                source.try_clone().unwrap(),
            );
            thread::spawn(move || io::copy(&mut &back.0, &mut &back.1));
            carrying.carry(&source, &destination)
        });
        between
    }

    fn carry(&self, mut from: &UnixStream, mut to: &UnixStream) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = from.read(&mut buffer)?;
            if read == 0 {
                return to.shutdown(Shutdown::Both);
            }
            if !self.loses.load(Ordering::Acquire) {
                to.write_all(&buffer[..read])?;
            }
        }
    }

    /// Nothing that the source sends from now on gets through.
    pub fn lose(&self) {
        self.loses.store(true, Ordering::Release);
    }

    /// Breaks the connection for both.
    pub fn cut(&self) {
        for end in self.ends.lock().unwrap().iter() {
            let _ = end.shutdown(Shutdown::Both); // closed by the other one already
        }
    }
}
