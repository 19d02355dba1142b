//! Hosts emptied as scripts do it: by QEMU's own means, one guest after another or all at once.

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use serde_json::{Value, json};

use super::crew::Member;
use crate::compare::{Method, Variant, concrete_machine, hand_off, prepare};
use crate::lab::Lab;
use crate::limits;
use crate::network;
use crate::resident::launch_qemu;

/// The port of the first guest's QEMU on its destination; each has the next one.
const PORT: u16 = 4450;

/// How QEMU is told to move each guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Way {
    /// Its method.
    pub(super) method: Method,
    /// Its channels.
    pub(super) variant: Variant,
    /// Whether all guests move at once.
    pub(super) at_once: bool,
}

/// Moves each guest to the host that is told for it.
///
/// # Errors
/// A move failed; guests are where they are then.
pub(super) async fn move_all(
    lab: &Lab,
    members: &mut [Member],
    to: impl Fn(usize) -> usize,
    way: Way,
) -> Result<()> {
    let moves = members.iter_mut().enumerate().map(|(number, member)| {
        let to = to(number);
        let port = PORT + u16::try_from(number).unwrap_or_default();
        async move {
            let name = member.definition.name.clone();
            let moved = move_one(lab, member, to, (way, port)).await;
            moved.with_context(|| format!("guest {name}"))
        }
    });
    if way.at_once {
        return try_join_all(moves).await.map(drop);
    }
    for one in moves {
        one.await?;
    }
    Ok(())
}

async fn move_one(
    lab: &Lab,
    member: &mut Member,
    to: usize,
    (way, port): (Way, u16),
) -> Result<()> {
    let watched = member.watched.clone();
    let from = watched.runs_on().context("it does not run")?;
    let source = watched.on(from, limits::QEMU_START).await?;
    let mut definition = member.definition.clone();
    definition.machine = Some(concrete_machine(&source, &definition.machine).await?);
    let mut child = launch_qemu(&lab.host(to), &definition, true)?;
    let mark = source.mark();
    let moved = async {
        let destination = watched.on(to, limits::QEMU_START).await?;
        let nic = lab.settings().fastest();
        let address = network::address_of(lab.settings(), nic, to)
            .with_context(|| format!("NIC {nic} has no address that QEMU could be told"))?;
        let uri = format!("tcp:{}", std::net::SocketAddr::new(address, port));
        for side in [&destination, &source] {
            prepare(side, lab.settings(), way.method, way.variant).await?;
        }
        let uri = json!({ "uri": uri });
        destination.run("migrate-incoming", uri.clone()).await?;
        source.run("migrate", uri).await?;
        hand_off(&source, mark, &destination).await
    };
    if let Err(error) = moved.await {
        child
            .kill()
            .await
            .context("cannot end the destination's QEMU")?;
        return Err(error);
    }
    // QEMU may end before it answers.
    let _ = source.run("quit", Value::Null).await;
    if let Some(mut left) = member.own.replace(child) {
        let ended = tokio::time::timeout(limits::KILL, left.wait()).await;
        ended
            .context("the source's QEMU does not end")?
            .context("cannot watch QEMU")?;
    }
    Ok(())
}
