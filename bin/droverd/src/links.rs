//! What happens to this host's links, for every migration that wants to know.

use drover_host::{LinkEvent, LinkWatch};
use tokio::sync::broadcast;

use crate::limits;

/// The host's link events. Clones give out the same.
#[derive(Debug, Clone)]
pub struct Links {
    events: broadcast::Sender<LinkEvent>,
}

impl Links {
    /// Watches for as long as the agent runs.
    pub fn watch() -> Self {
        let (events, _) = broadcast::channel(limits::LINK_EVENTS);
        let sender = events.clone();
        tokio::spawn(async move {
            loop {
                pass_on(&sender).await;
                tokio::time::sleep(limits::WATCH_AGAIN).await;
            }
        });
        Self { events }
    }

    /// What happens from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<LinkEvent> {
        self.events.subscribe()
    }
}

/// Gives events out until the watch breaks. Nobody may be listening.
async fn pass_on(events: &broadcast::Sender<LinkEvent>) {
    let mut watch = match LinkWatch::open().await {
        Ok(watch) => watch,
        Err(error) => {
            tracing::warn!(%error, "links are not watched: trying again");
            return;
        }
    };
    // Between two watches anything may have changed.
    let _ = events.send(LinkEvent::Missed);
    while let Some(event) = watch.next().await {
        tracing::debug!(?event, "link");
        let _ = events.send(event);
    }
    tracing::warn!("the kernel's socket for link events broke: opening it again");
}
