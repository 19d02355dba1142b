//! Accepting lanes: at one port, at addresses that come and go.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use socket2::{Domain, Protocol, Socket, Type};

use crate::limits::BACKLOG;
use crate::{Connection, lock};

/// The port that lanes are accepted on. Nobody reaches it but at the addresses that it is told.
#[derive(Debug)]
pub struct Listener {
    port: u16,
    /// Bound to every address and listening on none: the port is ours meanwhile.
    _held: Socket,
    open: Mutex<BTreeMap<IpAddr, Arc<TcpListener>>>,
    /// Wakes who waits in [`Listener::accept`], as what there is to wait for has changed.
    wake: OwnedFd,
    stopped: AtomicBool,
    /// Which address is asked first, so that none is passed over for ever.
    turn: AtomicUsize,
}

/// Lanes cannot be accepted.
#[derive(Debug, thiserror::Error)]
pub enum NotListening {
    /// At no address.
    #[error("cannot have TCP port {port} for lanes")]
    Port {
        /// The port.
        port: u16,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// At this one.
    #[error("cannot listen for lanes at {address}")]
    Address {
        /// It.
        address: SocketAddr,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl Listener {
    /// Takes `port`, or any that is free for 0; it is listened on nowhere yet.
    ///
    /// # Errors
    /// [`NotListening::Port`], for one when another process listens on it.
    pub fn hold(port: u16) -> Result<Self, NotListening> {
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let bound = match bind(any6, false) {
            Err(error) if error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error()) => {
                bind(any4, false)
            }
            other => other,
        };
        let held = bound.and_then(|held| {
            let address = held.local_addr()?.as_socket();
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            Ok((
                address.map_or(port, |address| address.port()),
                held,
                eventfd(0, flags)?,
            ))
        });
        let (port, held, wake) = held.map_err(|source| NotListening::Port { port, source })?;
        Ok(Self {
            port,
            _held: held,
            open: Mutex::default(),
            wake,
            stopped: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
        })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Listens at this address, too.
    ///
    /// # Errors
    /// [`NotListening::Address`], for one when the host does not have it.
    pub fn listen(&self, address: IpAddr) -> Result<(), NotListening> {
        let mut open = lock(&self.open);
        if open.contains_key(&address) {
            return Ok(());
        }
        let at = SocketAddr::new(address, self.port);
        let listening = bind(at, true).and_then(|socket| {
            socket.listen(BACKLOG)?;
            // One that is gone by the time it is taken must not keep the others waiting.
            socket.set_nonblocking(true)?;
            Ok(Arc::new(TcpListener::from(socket)))
        });
        let failed = |source| NotListening::Address {
            address: at,
            source,
        };
        open.insert(address, listening.map_err(failed)?);
        self.wake();
        Ok(())
    }

    /// Listens only at these addresses of those at which it does.
    pub fn keep(&self, keeps: impl Fn(IpAddr) -> bool) {
        lock(&self.open).retain(|address, listener| {
            let kept = keeps(*address);
            if !kept {
                close(listener);
            }
            kept
        });
        self.wake();
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The socket's error; an error of `InvalidInput` says that [`Listener::shut_down`] was called.
    pub fn accept(&self) -> io::Result<Connection> {
        loop {
            let all: Vec<_> = lock(&self.open).values().cloned().collect();
            if self.stopped.load(Ordering::Acquire) {
                return Err(ErrorKind::InvalidInput.into());
            }
            for listener in self.ready(&all)? {
                match listener.accept() {
                    // One that is gone by now has no options to set, and is no reason to stop.
                    Ok((stream, _)) => {
                        if let Ok(connection) = Connection::adopt(stream) {
                            return Ok(connection);
                        }
                    }
                    Err(error) if is_passing(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Those with a connection, in turn; none when what there is to wait for has changed.
    fn ready<'a>(&self, all: &'a [Arc<TcpListener>]) -> io::Result<Vec<&'a TcpListener>> {
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        polled.extend(all.iter().map(|one| PollFd::new(&**one, PollFlags::IN)));
        match poll(&mut polled, None) {
            Err(Errno::INTR) => return Ok(Vec::new()),
            other => other?,
        };
        if !polled[0].revents().is_empty() {
            // Nothing was counted if another took it.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        let with_one = polled[1..]
            .iter()
            .zip(all)
            .filter(|(polled, _)| !polled.revents().is_empty());
        let mut ready: Vec<&TcpListener> = with_one.map(|(_, one)| &**one).collect();
        if !ready.is_empty() {
            let first = self.turn.fetch_add(1, Ordering::Relaxed) % ready.len();
            ready.rotate_left(first);
        }
        Ok(ready)
    }

    fn wake(&self) {
        // A counter that is full is readable, which is all that is wanted.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Ends an [`Listener::accept`] under way and all later ones.
    pub fn shut_down(&self) {
        self.stopped.store(true, Ordering::Release);
        self.keep(|_| false);
    }
}

/// Ends it at once, also where [`Listener::accept`] still has hold of it.
fn close(listener: &TcpListener) {
    let _ = shutdown(listener.as_fd(), Shutdown::Both);
}

/// The connection went away, or the socket was closed meanwhile.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::InvalidInput
    )
}

/// A socket at this address; one for every address takes IPv4 as well as IPv6.
fn bind(address: SocketAddr, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // Lanes of before, which go on in their processes, have the port as well.
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::thread;

    use super::*;
    use crate::Target;
    use crate::limits::CONNECT_TIMEOUT;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// All of 127.0.0.0/8 is this machine's.
    const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

    fn listener() -> Listener {
        let listener = Listener::hold(0).unwrap();
        listener.listen(HERE).unwrap();
        listener
    }

    fn connect(address: IpAddr, port: u16) -> io::Result<TcpStream> {
        TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_TIMEOUT)
    }

    fn is_refused(address: IpAddr, port: u16) -> bool {
        let refused = connect(address, port).map_err(|error| error.kind());
        refused.is_err_and(|kind| kind == ErrorKind::ConnectionRefused)
    }

    fn loopback(listener: &Listener) -> Target {
        let port = listener.port();
        Target {
            interface: "lo".into(),
            local: Ipv4Addr::LOCALHOST.into(),
            remote: (Ipv4Addr::LOCALHOST, port).into(),
            segment: None,
            patience: CONNECT_TIMEOUT,
        }
    }

    #[test]
    fn buffers_arrive_whole_with_their_header() {
        let listener = listener();
        let near = Connection::connect(&loopback(&listener))
            .unwrap()
            .into_plain();
        let far = listener.accept().unwrap().into_plain();
        let payload: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
        let sent = payload.clone();
        let sender = thread::spawn(move || near.send(b"header", &sent));
        let mut header = [0; 6];
        let mut received = vec![0; payload.len()];
        far.receive(&mut header).unwrap();
        far.receive(&mut received).unwrap();
        sender.join().unwrap().unwrap();
        assert_eq!(&header, b"header");
        assert!(received == payload);
    }

    #[test]
    fn a_header_alone_can_be_sent() {
        let listener = listener();
        let near = Connection::connect(&loopback(&listener))
            .unwrap()
            .into_plain();
        let far = listener.accept().unwrap().into_plain();
        near.send(b"header", b"").unwrap();
        let mut header = [0; 6];
        far.receive(&mut header).unwrap();
        assert_eq!(&header, b"header");
    }

    #[test]
    fn shutting_a_lane_down_ends_a_receive_under_way_at_both_ends() {
        let listener = listener();
        let near = std::sync::Arc::new(
            Connection::connect(&loopback(&listener))
                .unwrap()
                .into_plain(),
        );
        let far = listener.accept().unwrap().into_plain();
        let receiver = {
            let near = near.clone();
            thread::spawn(move || near.receive(&mut [0; 1]).unwrap_err().kind())
        };
        near.shut_down();
        assert_eq!(receiver.join().unwrap(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            far.receive(&mut [0; 1]).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn shutting_a_listener_down_ends_an_accept_under_way() {
        let listener = Arc::new(listener());
        let waiting = {
            let listener = listener.clone();
            thread::spawn(move || listener.accept().map(|_| ()))
        };
        listener.shut_down();
        assert!(waiting.join().unwrap().is_err());
    }

    #[test]
    fn a_port_where_nobody_listens_is_an_error_that_names_both_ends() {
        let listener = listener();
        let target = loopback(&listener);
        drop(listener);
        let error = Connection::connect(&target).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("127.0.0.1 on lo") && text.contains(&target.remote.to_string()));
        assert_eq!(error.source.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_port_on_which_somebody_else_listens_is_an_error_that_names_it() {
        let other = TcpListener::bind((HERE, 0)).unwrap();
        let port = other.local_addr().unwrap().port();
        let NotListening::Port { source, .. } = Listener::hold(port).unwrap_err() else {
            panic!("the port, not an address");
        };
        assert_eq!(source.kind(), ErrorKind::AddrInUse);
        // Where another program listens later, or another agent.
        let one = listener();
        let again = Listener::hold(one.port()).and_then(|again| again.listen(HERE));
        let told = again.unwrap_err().to_string();
        assert!(told.contains(&one.port().to_string()), "{told}");
    }

    #[test]
    fn a_port_that_is_held_is_listened_on_at_the_addresses_that_were_told_and_no_others() {
        let listener = Listener::hold(0).unwrap();
        let port = listener.port();
        assert!(is_refused(HERE, port) && is_refused(THERE, port));
        listener.listen(HERE).unwrap();
        listener.listen(HERE).unwrap();
        let near = connect(HERE, port).unwrap();
        let accepted = listener.accept().unwrap();
        assert_eq!(accepted.peer(), near.local_addr().unwrap());
        assert_eq!(accepted.local().ip(), HERE);
        assert!(is_refused(THERE, port));
        if let Ok(v6) = listener.listen(Ipv6Addr::LOCALHOST.into()) {
            assert_eq!(v6, ());
            connect(Ipv6Addr::LOCALHOST.into(), port).unwrap();
            listener.accept().unwrap();
        }
        listener.keep(|_| false);
        assert!(is_refused(HERE, port));
        // What was accepted goes on.
        drop((near, accepted));
        listener.listen(HERE).unwrap();
        connect(HERE, port).unwrap();
    }

    #[test]
    fn an_address_that_is_told_while_somebody_waits_is_accepted_at_and_one_that_is_not_ours_is_an_error()
     {
        let listener = Arc::new(Listener::hold(0).unwrap());
        let waiting = {
            let listener = listener.clone();
            thread::spawn(move || listener.accept().map(|connection| connection.local().ip()))
        };
        listener.listen(HERE).unwrap();
        listener.listen(THERE).unwrap();
        let _near = connect(THERE, listener.port()).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), THERE);
        let foreign = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        let error = listener.listen(foreign).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("at 192.0.2.1:"), "{told}");
    }

    #[test]
    fn no_address_is_passed_over_while_another_has_many() {
        let listener = listener();
        listener.listen(THERE).unwrap();
        let _many: Vec<_> = (0..20)
            .map(|_| connect(HERE, listener.port()).unwrap())
            .collect();
        let _one = connect(THERE, listener.port()).unwrap();
        let first = (0..4).map(|_| listener.accept().unwrap().local().ip());
        assert!(first.collect::<Vec<_>>().contains(&THERE));
    }
}
