use std::ffi::CString;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::{ConnectError, Refusal};
use crate::library::Library;
use crate::limits;
use crate::raw::{self, NotOpened};
use crate::shared::Shared;

/// Connects in a new thread, makes the first calls there, and has the thread go on with the connection, unless nobody waits any
/// more: then it is closed again.
///
/// An attempt that hangs keeps its thread. Whoever calls this bounds how many there are, by a [`Place`](crate::library::Place): in
/// `first` the thread has it until the first calls are answered, in `go_on` until it ends.
///
/// # Errors
/// libvirt refuses to connect or one of the first calls, or does not answer within [`limits::CONNECT`].
pub(crate) async fn open<T: Send + 'static>(
    library: Library,
    uri: &str,
    thread: &str,
    shared: &Arc<Shared>,
    first: impl FnOnce(&mut raw::Connection) -> Result<T, Refusal> + Send + 'static,
    go_on: impl FnOnce(raw::Connection) + Send + 'static,
) -> Result<T, ConnectError> {
    let owned = || uri.to_owned();
    let text = CString::new(uri).map_err(|_| ConnectError::Uri { uri: owned() })?;
    let (opened, answer) = oneshot::channel();
    let told = Arc::clone(shared);
    let connect = move || {
        let connection = raw::Connection::open(library.0, &text, &told);
        let answered = connection.and_then(|mut connection| {
            let answer = first(&mut connection)?;
            Ok((connection, answer))
        });
        let (connection, answer) = match answered {
            Ok((connection, answer)) => (Some(connection), Ok(answer)),
            Err(why) => (None, Err(why)),
        };
        let is_waited_for = opened.send(answer).is_ok();
        if let Some(connection) = connection.filter(|_| is_waited_for) {
            go_on(connection);
        }
    };
    let thread = std::thread::Builder::new().name(thread.to_owned());
    let spawned = thread.spawn(connect);
    spawned.map_err(|source| ConnectError::Thread { source })?;
    match timeout(limits::CONNECT, answer).await {
        Ok(Ok(Ok(answer))) => Ok(answer),
        Ok(Ok(Err(NotOpened::NoKeepalive))) => Err(ConnectError::NoKeepalive { uri: owned() }),
        Ok(Ok(Err(NotOpened::Refused(source)))) => Err(ConnectError::Refused {
            uri: owned(),
            source,
        }),
        Ok(Err(_)) | Err(_) => Err(ConnectError::NoAnswer {
            uri: owned(),
            within: limits::CONNECT,
        }),
    }
}
