use std::sync::Arc;

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
/// There is no connection, the domain or its job is not there, there is no answer within [`limits::CONNECT`], or
/// [`limits::ABORTS`] others are waited for already.
pub async fn abort_job(library: Library, uri: &str, domain: Uuid) -> Result<(), NotEnded> {
    let place = Place::to_abort().ok_or(CallError::TooMany {
        what: WHAT,
        waiting: limits::ABORTS,
    })?;
    let shared = Arc::new(Shared::new());
    let abort = move |connection: &mut raw::Connection, attempt: Place| {
        // The domain's lock may be held; this has a place of its own until it is answered.
        drop(attempt);
        let aborted = connection.domain(domain).and_then(|at| at.abort_job());
        drop(place);
        Ok(aborted.map_err(|refusal| connection.failure(refusal)))
    };
    let aborted = opening::open(library, uri, "libvirt-abort", &shared, abort, drop).await?;
    shared.understood(WHAT, Some(aborted))?;
    Ok(())
}
