//! What this host and the others say of themselves to those who look for what costs migrations. Changes nothing, and judges nothing:
//! that is `drover-tune`'s.

mod clock;
mod domains;
mod guests;
mod inside;
mod kept;
mod process;
mod thin;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{
    Client, ClientError, ClusterFactsView, ErrorCode, FactsView, KeptReport, KeptView,
    MemberLeftOut, Refusal,
};
use drover_host::{Told, Tree};
use drover_plan::Text;
use drover_tune::facts::{Clock, Fact, Host, Waking};
use drover_types::{HostName, with_sources};
use jiff::Timestamp;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use self::kept::Kept;
use crate::agent::Context;
use crate::{changes, inventory, limits};

/// Facts are read from this machine itself.
const ROOT: &str = "/";

/// This host, its guests and libvirt's domains.
///
/// # Errors
/// As for [`host`].
pub async fn facts(context: &Context) -> Result<FactsView, Refusal> {
    let began = Some(Timestamp::now());
    let at_once = Semaphore::new(limits::GUESTS_READ);
    let (host, guests, domains, offers) = tokio::join!(
        host(context),
        guests::guests(context, &at_once),
        domains::domains(context, &at_once),
        inventory::processors(context)
    );
    let facts = Host {
        guests,
        domains,
        offers: offers.map_or_else(Fact::Unknown, Fact::Known),
        ..host?
    };
    let ended = Some(Timestamp::now());
    Ok(FactsView {
        facts,
        began,
        ended,
    })
}

/// This host without what is its guests'.
///
/// # Errors
/// Its kernel does not list its interfaces.
pub async fn host(context: &Context) -> Result<Host, Refusal> {
    let failed = |why: String| {
        let message = format!("cannot read the facts of this host: {why}");
        Refusal::new(ErrorCode::Internal, message)
    };
    let told = Told::ask(Path::new(ROOT), context.config.host.as_str()).await;
    let told = told.map_err(|error| failed(with_sources(&error)))?;
    let state = context.config.state.clone();
    let read = move || {
        let mut host = drover_host::facts(&Tree::at(Path::new(ROOT)), &told);
        changes::mark_fixed(&state, &mut host);
        host
    };
    let read = tokio::task::spawn_blocking(read).await;
    let mut host = read.map_err(|error| failed(error.to_string()))?;
    context.lldp.tell(&mut host);
    host.waking = Fact::Known(waking(context.config.migration.cpu_latency_us));
    Ok(host)
}

fn waking(wished_us: Option<u32>) -> Waking {
    let held = drover_host::held_latency(Path::new(ROOT));
    Waking {
        wished_us,
        held_us: held.map_or_else(|error| Fact::unknown(with_sources(&error)), Fact::Known),
    }
}

/// All members, this one included.
///
/// # Errors
/// As for [`facts`].
pub async fn cluster(context: &Context) -> Result<ClusterFactsView, Refusal> {
    let others = context.peers.ask_all(timed);
    let (own, others) = tokio::join!(facts(context), others);
    Ok(together(own?, others))
}

/// This host and these others.
///
/// # Errors
/// As for [`facts`].
pub async fn of_these(
    context: &Context,
    others: Vec<HostName>,
) -> Result<ClusterFactsView, Refusal> {
    let others = context.peers.ask_these(others, timed);
    let (own, others) = tokio::join!(facts(context), others);
    Ok(together(own?, others))
}

/// Asks a member, with what its clock shows beside this host's.
async fn timed(client: &Client) -> Result<FactsView, ClientError> {
    let asked = Timestamp::now();
    let mut told = client.facts().await?;
    told.facts.clock = clock::beside([asked, Timestamp::now()], told.began.zip(told.ended));
    Ok(told)
}

fn together(
    own: FactsView,
    others: Vec<(HostName, Result<FactsView, Refusal>, Instant)>,
) -> ClusterFactsView {
    let own = Host {
        clock: Fact::Known(Clock::default()),
        ..own.facts
    };
    let mut all = ClusterFactsView {
        facts: vec![own],
        left_out: Vec::new(),
    };
    for (host, told, _) in others {
        match told
            .map_err(|refusal| refusal.message)
            .and_then(|told| own_word(&host, told))
        {
            Ok(told) => all.facts.push(told.facts),
            Err(why) => {
                // Another agent's words, to be shown on a terminal.
                let why = Text::from(why).to_string();
                all.left_out.push(MemberLeftOut { host, why });
            }
        }
    }
    all.facts.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

/// What was kept: the newest that is as old as that, or the oldest there is.
///
/// # Errors
/// The directory cannot be read.
pub async fn kept(context: &Context, at: Timestamp) -> Result<KeptView, Refusal> {
    let kept = Kept::below(&context.config.state);
    let read = tokio::task::spawn_blocking(move || kept.of(at, Timestamp::now())).await;
    let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| {
        let directory = Kept::below(&context.config.state);
        let message = format!("what was found before cannot be read: {directory}: {error}");
        Refusal::new(ErrorCode::Internal, message)
    })
}

/// Keeps it, or says why not. A disk that stands still holds up no answer: who writes goes on by himself, and who comes meanwhile keeps
/// nothing.
pub async fn keep(context: &Context, report: KeptReport) -> Option<String> {
    let kept = Kept::below(&context.config.state);
    let write = move || kept.keep(&report, Timestamp::now());
    let why = in_time(&context.paths.keeping, limits::KEEP, write)
        .await
        .err()?;
    tracing::warn!(why, "what was found of the cluster is not kept");
    Some(why)
}

/// Does what nobody else may do meanwhile, and says why it is not known to be done.
async fn in_time(
    only: &Arc<Mutex<()>>,
    within: Duration,
    write: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let held = Arc::clone(only).try_lock_owned();
    let held = held.map_err(|_| "what was found before is still being written".to_owned())?;
    let written = tokio::task::spawn_blocking(move || {
        let _held = held;
        write()
    });
    let written = tokio::time::timeout(within, written).await;
    let written = written.map_err(|_| format!("the disk did not take it within {within:?}"))?;
    let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
    written.map_err(|error| error.to_string())
}

fn own_word(host: &HostName, told: FactsView) -> Result<FactsView, String> {
    if told.facts.name == host.as_str() {
        Ok(told)
    } else {
        Err(format!("it answers in the name of {}", told.facts.name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const NEVER: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_disk_that_stands_still_holds_up_nobody_and_is_not_waited_for_twice() {
        let only = Arc::default();
        let (go_on, waits) = mpsc::channel::<()>();
        let stands = move || waits.recv().map_err(io::Error::other);
        let late = in_time(&only, Duration::from_millis(1), stands).await;
        assert_eq!(late, Err("the disk did not take it within 1ms".to_owned()));
        let busy = in_time(&only, NEVER, || Ok(())).await.unwrap_err();
        assert!(busy.contains("still being written"), "{busy}");
        go_on.send(()).unwrap();
        // What stood still lets the next one write once it is done.
        drop(only.lock().await);
        in_time(&only, NEVER, || Ok(())).await.unwrap();
        let failed = in_time(&only, NEVER, || Err(io::Error::other("it is full"))).await;
        assert_eq!(failed, Err("it is full".to_owned()));
    }
}
