use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::error::{CallError, NotEnded};
use crate::library::{Library, Place};
use crate::limits;
use crate::opening;
use crate::raw;
use crate::shared::Shared;

const WHAT: &str = "end a domain's job";

/// Ends a domain's job, such as its migration; that fails then, and the domain goes on where it was.
///
/// It has a connection of its own for that: over another one it would wait for the calls before it, of which one may hang.
///
/// # Errors
/// There is no connection within [`limits::CONNECT`], the domain or its job is not there, there is no answer within
/// [`limits::CALL`], or [`limits::ABORTS`] others are waited for already.
pub async fn abort_job(library: Library, uri: &str, domain: Uuid) -> Result<(), NotEnded> {
    let place = Place::to_abort().ok_or(CallError::TooMany {
        what: WHAT,
        waiting: limits::ABORTS,
    })?;
    let shared = Arc::new(Shared::new());
    let (sender, answer) = oneshot::channel();
    // It has its place until it is answered, however long it hangs: in connecting, or for the domain's lock.
    let abort = move |connection: raw::Connection| {
        let aborted = connection.domain(domain).and_then(|at| at.abort_job());
        let aborted = aborted.map_err(|refusal| connection.failure(refusal));
        drop(place);
        // Nobody may be waiting any more.
        let _ = sender.send(aborted);
    };
    let first = |_: &mut raw::Connection| Ok(());
    opening::open(library, uri, "libvirt-abort", &shared, first, abort).await?;
    Ok(shared.answer(WHAT, answer).await?)
}
