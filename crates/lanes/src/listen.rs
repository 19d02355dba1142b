//! Accepting lanes.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use crate::Connection;
use crate::limits::BACKLOG;

/// The port that lanes are accepted on, for every address of the host.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

/// The port could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for lanes on port {port}")]
pub struct NotListening {
    /// The port.
    pub port: u16,
    /// What the kernel said.
    #[source]
    pub source: io::Error,
}

impl Listener {
    /// Listens on `port` for IPv6 and IPv4, or for IPv4 alone where the host has no IPv6.
    ///
    /// # Errors
    /// [`NotListening`], for one when another process has the port.
    pub fn bind(port: u16) -> Result<Self, NotListening> {
        let any6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let any4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let bound = match listen(any6) {
            Err(error) if error.raw_os_error() == Some(libc_eafnosupport()) => listen(any4),
            other => other,
        };
        bound
            .map(|listener| Self { listener })
            .map_err(|source| NotListening { port, source })
    }

    /// The port listened on.
    ///
    /// # Errors
    /// The socket's error.
    pub fn port(&self) -> io::Result<u16> {
        self.listener.local_addr().map(|address| address.port())
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    /// The socket's error; an error of `InvalidInput` says that [`Listener::shut_down`] was called.
    pub fn accept(&self) -> io::Result<Connection> {
        loop {
            let (stream, _) = self.listener.accept()?;
            // One that is gone by now has no options to set, and is no reason to stop.
            if let Ok(connection) = Connection::adopt(stream) {
                return Ok(connection);
            }
        }
    }

    /// Ends an [`Listener::accept`] under way and all later ones.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
    }
}

fn libc_eafnosupport() -> i32 {
    rustix::io::Errno::AFNOSUPPORT.raw_os_error()
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Target;
    use crate::limits::CONNECT_TIMEOUT;

    fn loopback(listener: &Listener) -> Target {
        let port = listener.port().unwrap();
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
        let listener = Listener::bind(0).unwrap();
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
        let listener = Listener::bind(0).unwrap();
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
        let listener = Listener::bind(0).unwrap();
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
        let listener = std::sync::Arc::new(Listener::bind(0).unwrap());
        let waiting = {
            let listener = listener.clone();
            thread::spawn(move || listener.accept().map(|_| ()))
        };
        listener.shut_down();
        assert!(waiting.join().unwrap().is_err());
    }

    #[test]
    fn a_port_where_nobody_listens_is_an_error_that_names_both_ends() {
        let listener = Listener::bind(0).unwrap();
        let target = loopback(&listener);
        drop(listener);
        let error = Connection::connect(&target).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("127.0.0.1 on lo") && text.contains(&target.remote.to_string()));
        assert_eq!(error.source.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_port_in_use_is_an_error_that_names_the_port() {
        let first = Listener::bind(0).unwrap();
        let port = first.port().unwrap();
        let error = Listener::bind(port).unwrap_err();
        assert!(error.to_string().contains(&port.to_string()));
        assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
    }
}
