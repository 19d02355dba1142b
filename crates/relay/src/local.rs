//! The sockets by which a relay is joined to its host: QEMU's, and beside it one of whoever drives that.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use drover_session::ChannelId;

/// Where a relay's channels begin on its host: on the source's it listens there, on the destination's it connects to there.
#[derive(Debug, Clone, Copy)]
pub struct Sockets<'a> {
    /// QEMU's channels: the main one, then all others.
    pub memory: &'a Path,
    /// One channel before QEMU's own, to whoever drives that on the other host, such as a libvirtd. Only one connection is
    /// taken there, and none of QEMU's before it.
    pub control: Option<&'a Path>,
    /// Disks that QEMU sends before its memory.
    pub disks: Option<Disks<'a>>,
}

/// Channels of QEMU's that it opens before its main one, and after whoever drives it has.
#[derive(Debug, Clone, Copy)]
pub struct Disks<'a> {
    /// Where.
    pub socket: &'a Path,
    /// How many: so many connections are taken there, and none of QEMU's memory before them.
    pub count: u16,
}

impl<'a> From<&'a Path> for Sockets<'a> {
    fn from(memory: &'a Path) -> Self {
        Self {
            memory,
            control: None,
            disks: None,
        }
    }
}

impl<'a> From<&'a PathBuf> for Sockets<'a> {
    fn from(memory: &'a PathBuf) -> Self {
        memory.as_path().into()
    }
}

/// Where a relay's QEMU is.
#[derive(Debug)]
pub(crate) enum Local {
    /// QEMU connects to us.
    Listening {
        memory: Listening,
        control: Option<Listening>,
        disks: Option<(Listening, u16)>,
    },
    /// We connect to QEMU.
    Connects {
        memory: PathBuf,
        control: Option<PathBuf>,
        disks: Option<(PathBuf, u16)>,
    },
}

/// A socket that we made.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: UnixListener,
    path: PathBuf,
}

impl Listening {
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(path)?;
        let path = path.to_owned();
        Ok(Self { listener, path })
    }

    pub(crate) fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().map(|(stream, _)| stream)
    }

    /// Takes no connection any more. Whoever waits for one waits no longer.
    pub(crate) fn close(&self) {
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Local {
    /// The source's end, which listens.
    ///
    /// # Errors
    /// The socket that could not be made, and why; no other is left.
    pub(crate) fn listening(sockets: Sockets<'_>) -> Result<Self, (PathBuf, io::Error)> {
        let at = |path: &Path| Listening::at(path).map_err(|error| (path.to_owned(), error));
        let memory = at(sockets.memory)?;
        let control = sockets.control.map(at).transpose();
        let control = control.inspect_err(|_| memory.close())?;
        let disks = sockets.disks;
        let disks = disks.map(|disks| at(disks.socket).map(|made| (made, disks.count)));
        let disks = disks.transpose().inspect_err(|_| {
            memory.close();
            control.iter().for_each(Listening::close);
        })?;
        Ok(Self::Listening {
            memory,
            control,
            disks,
        })
    }

    /// The destination's end, which connects.
    pub(crate) fn connecting(sockets: Sockets<'_>) -> Self {
        Self::Connects {
            memory: sockets.memory.to_owned(),
            control: sockets.control.map(Path::to_owned),
            disks: sockets
                .disks
                .map(|disks| (disks.socket.to_owned(), disks.count)),
        }
    }

    pub(crate) fn is_source(&self) -> bool {
        matches!(self, Self::Listening { .. })
    }

    fn has_control(&self) -> bool {
        match self {
            Self::Listening { control, .. } => control.is_some(),
            Self::Connects { control, .. } => control.is_some(),
        }
    }

    /// How many disks QEMU sends.
    pub(crate) fn disks(&self) -> u16 {
        match self {
            Self::Listening { disks, .. } => disks.as_ref().map_or(0, |(_, count)| *count),
            Self::Connects { disks, .. } => disks.as_ref().map_or(0, |(_, count)| *count),
        }
    }

    /// The channel that QEMU opens first for its memory.
    pub(crate) fn main(&self) -> ChannelId {
        ChannelId::from(self.has_control()) + self.disks()
    }

    /// Whether a channel is none of QEMU's, but comes before them.
    pub(crate) fn is_control(&self, channel: ChannelId) -> bool {
        self.has_control() && channel == 0
    }

    /// Where a channel is to be connected to; none at the end that listens.
    pub(crate) fn target(&self, channel: ChannelId) -> Option<&PathBuf> {
        let Self::Connects {
            memory,
            control,
            disks,
        } = self
        else {
            return None;
        };
        let disks = disks.as_ref().map(|(disks, _)| disks);
        Some(match (control, disks) {
            (Some(control), _) if channel == 0 => control,
            (_, Some(disks)) if channel < self.main() => disks,
            _ => memory,
        })
    }

    /// Takes no connection any more.
    pub(crate) fn close(&self) {
        if let Self::Listening {
            memory,
            control,
            disks,
        } = self
        {
            let disks = disks.as_ref().map(|(disks, _)| disks);
            let beside = control.iter().chain(disks);
            std::iter::once(memory)
                .chain(beside)
                .for_each(Listening::close);
        }
    }
}
