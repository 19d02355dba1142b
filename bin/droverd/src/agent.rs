//! The agent's life: claim, recover, serve, end.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use drover_hypervisor::{Hypervisor, QemuLauncher};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use crate::api::{self, App};
use crate::config::Config;
use crate::limits;
use crate::metrics::{self, Metrics};
use crate::migration::Migrations;
use crate::peers::Peers;
use crate::places;
use crate::registry::Registry;

/// What every part of the agent works with.
#[derive(Debug)]
pub struct Context {
    /// The configuration.
    pub config: Arc<Config>,
    /// The guests of this host.
    pub registry: Registry,
    /// The other hosts.
    pub peers: Peers,
    /// What is counted.
    pub metrics: Metrics,
}

/// Runs the agent until it is told to end.
///
/// # Errors
/// It could not begin; nothing was changed then but its own directories.
pub async fn run(config: Config) -> Result<()> {
    let mut ends = Ends::new()?;
    let config = Arc::new(config);
    let _places = places::claim(&config)?;
    let local = places::listen_local(&config.socket).await?;
    let mut peers = Vec::new();
    for address in &config.listen {
        peers.push(places::listen_peers(*address).await?);
    }
    let for_metrics = match config.metrics_listen {
        Some(address) => Some(places::listen_metrics(address).await?),
        None => None,
    };
    let hypervisor: Arc<dyn Hypervisor> = Arc::new(QemuLauncher::new());
    let opened = Registry::open(Arc::clone(&config), hypervisor).await;
    let (registry, recovered) = opened
        .with_context(|| format!("key `runtime`: cannot read {}", config.runtime.display()))?;
    let context = Arc::new(Context {
        peers: Peers::new(Arc::clone(&config)),
        config: Arc::clone(&config),
        registry,
        metrics: Metrics::new(),
    });
    let migrations = Arc::new(Migrations::open(Arc::clone(&context))?);
    migrations.recover(recovered).await?;

    let app = App::new(context, Arc::clone(&migrations));
    let mut beside = JoinSet::new();
    if let Some(listener) = for_metrics {
        beside.spawn(metrics::serve(listener, api::metrics_router(&app)));
    }
    let server = api::serve(&app, local, peers);
    announce(&config);
    notify(NotifyState::Ready);

    let signal = ends.next().await;
    tracing::info!(signal, "ending: no new work; guests run on");
    notify(NotifyState::Stopping);
    app.refuse_work();
    let finishing = migrations.shutdown();
    if tokio::time::timeout(limits::DRAIN_MIGRATIONS, finishing)
        .await
        .is_err()
    {
        let seconds = limits::DRAIN_MIGRATIONS.as_secs();
        tracing::error!(
            seconds,
            "migrations are not finished; the next start takes them up"
        );
    }
    server.stop().await;
    if let Err(error) = std::fs::remove_file(&config.socket) {
        tracing::warn!(socket = %config.socket.display(), %error, "not removed");
    }
    tracing::info!("ended");
    Ok(())
}

fn announce(config: &Config) {
    let version = env!("CARGO_PKG_VERSION");
    let socket = config.socket.display();
    tracing::info!(host = %config.host, version, %socket, "ready");
    for address in &config.listen {
        let peers: Vec<_> = config.peers.iter().map(|peer| peer.host.as_str()).collect();
        let peers = peers.join(", ");
        tracing::warn!(
            %address, %peers,
            "peers are known by their address alone: use a network that only the hosts reach"
        );
    }
}

/// systemd is told; without it there is nobody to tell.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd not told");
    }
}

/// The signals that end the agent.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
