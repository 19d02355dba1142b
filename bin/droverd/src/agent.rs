//! The agent's life: claim, recover, serve, end.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use drover_hypervisor::{Hypervisor, QemuLauncher};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::api::{self, App};
use crate::changes::Changes;
use crate::checkpoints::Checkpoints;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::cordon::Cordon;
use crate::disks;
use crate::end_with;
use crate::facts;
use crate::fence::Fence;
use crate::interrupts::Interrupts;
use crate::inventory::{self, Inventory};
use crate::libvirt::Libvirt;
use crate::limits;
use crate::links::Links;
use crate::lldp::{self, Lldp};
use crate::metrics::{self, Metrics};
use crate::migration::Migrations;
use crate::parking::Parking;
use crate::paths::Paths;
use crate::peers::Peers;
use crate::places;
use crate::planning::LastSaid;
use crate::registry::Registry;
use crate::shared_pages::SharedPages;
use crate::sharing::{self, Sharing};
use crate::storage::StorageMoves;

/// What every part of the agent works with.
#[derive(Debug)]
pub struct Context {
    /// The configuration.
    pub config: Arc<Config>,
    /// The guests of this host.
    pub registry: Registry,
    /// The domains of this host's libvirt.
    pub libvirt: Libvirt,
    /// This host's certificate, and who else is in the cluster.
    pub cluster: Arc<Cluster>,
    /// The other hosts.
    pub peers: Peers,
    /// What is counted.
    pub metrics: Metrics,
    /// What happens to this host's links.
    pub links: Links,
    /// What switches say at this host's adapters.
    pub lldp: Lldp,
    /// Limits on what migrations carry.
    pub sharing: Sharing,
    /// Whether guests are taken.
    pub cordon: Cordon,
    /// Which leadership's orders are taken.
    pub fence: Fence,
    /// Interrupts that are taken near NICs while these carry.
    pub interrupts: Interrupts,
    /// What plans must know of this host.
    pub inventory: Inventory,
    /// Pages that guests which arrive share.
    pub shared_pages: SharedPages,
    /// Pages of guests that left.
    pub checkpoints: Checkpoints,
    /// What the members said last.
    pub last_said: LastSaid,
    /// Questions about paths, and answers.
    pub paths: Paths,
    /// What is done with files of disks that come with guests, or were left by some.
    pub disk_works: disks::Works,
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
    let cluster = Arc::new(Cluster::open(Arc::clone(&config))?);
    let (for_others, listeners) = mpsc::channel(limits::LISTENERS);
    if cluster.is_member() {
        for address in &config.listen {
            for_others
                .send(places::listen_peers(*address).await?)
                .await?;
        }
    }
    let for_metrics = match config.metrics_listen {
        Some(address) => Some(places::listen_metrics(address).await?),
        None => None,
    };
    let hypervisor: Arc<dyn Hypervisor> =
        Arc::new(QemuLauncher::new().ask_through(end_with::words()));
    let opened = Registry::open(Arc::clone(&config), Arc::clone(&hypervisor)).await;
    let (registry, recovered) = opened
        .with_context(|| format!("key `runtime`: cannot read {}", config.runtime.display()))?;
    let has_guests = !recovered.is_empty() || registry.running() > 0;
    let checkpoints = Checkpoints::open(&config, has_guests).with_context(|| {
        let directory = config.checkpoints.directory.display();
        format!("key `checkpoints.directory`: cannot use {directory}")
    })?;
    let context = Arc::new(Context {
        peers: Peers::new(Arc::clone(&config), Arc::clone(&cluster)),
        cluster: Arc::clone(&cluster),
        config: Arc::clone(&config),
        registry,
        libvirt: Libvirt::open(&config.libvirt),
        metrics: Metrics::new(),
        links: Links::watch(),
        lldp: Lldp::default(),
        sharing: Sharing::open(config.limits.clone(), &config.state)
            .with_context(|| format!("key `state`: limits in {}", config.state.display()))?,
        cordon: Cordon::open(config.host.clone(), &config.state)
            .with_context(|| format!("key `state`: cordon.json in {}", config.state.display()))?,
        fence: Fence::open(config.host.clone(), &config.state)
            .with_context(|| format!("key `state`: orders.json in {}", config.state.display()))?,
        interrupts: Interrupts::open(
            Path::new(facts::ROOT),
            &config.state,
            config.migration.interrupts,
        )
        .with_context(|| format!("key `state`: interrupts.json in {}", config.state.display()))?,
        inventory: Inventory::new(hypervisor),
        shared_pages: SharedPages::new(
            config.migration.shared_pages_memory,
            config.migration.shared_pages_keep,
            checkpoints.key().clone(),
        ),
        checkpoints,
        disk_works: disks::Works::default(),
        last_said: LastSaid::default(),
        paths: Paths::default(),
    });
    let migrations = Arc::new(Migrations::open(Arc::clone(&context))?);
    migrations.recover(recovered).await?;

    let parking = Parking::open(Arc::clone(&context))
        .with_context(|| format!("key `state`: parked in {}", config.state.display()))?;
    let parking = Arc::new(parking);
    parking.tidy().await;

    let storage = StorageMoves::open(Arc::clone(&context))
        .with_context(|| format!("key `state`: storage-moves in {}", config.state.display()))?;

    let changes = Arc::new(Changes::new(Arc::clone(&context), Arc::clone(&migrations)));
    let coordinator = Arc::new(Coordinator::new(Arc::clone(&context)));
    let app = App::new(
        Arc::clone(&context),
        (
            Arc::clone(&migrations),
            Arc::clone(&parking),
            Arc::clone(&changes),
            Arc::clone(&storage),
        ),
        Arc::clone(&coordinator),
        for_others,
    );
    let mut beside = JoinSet::new();
    beside.spawn(sharing::run(Arc::clone(&context), Arc::clone(&migrations)));
    if let Some(listener) = for_metrics {
        beside.spawn(metrics::serve(listener, api::metrics_router(&app)));
    }
    beside.spawn(Arc::clone(&cluster).keep_up());
    beside.spawn(Arc::clone(&migrations).keep_telling());
    beside.spawn(Arc::clone(&migrations).keep_paying());
    beside.spawn(inventory::run(Arc::clone(&context)));
    beside.spawn(lldp::run(Arc::clone(&context)));
    beside.spawn({
        let context = Arc::clone(&context);
        async move { context.shared_pages.keep_tidy().await }
    });
    beside.spawn({
        let context = Arc::clone(&context);
        async move { context.checkpoints.keep_tidy().await }
    });
    beside.spawn(changes.keep_up());
    beside.spawn(context.registry.clone().keep_settled());
    beside.spawn(part_with_removed(
        Arc::clone(&cluster),
        Arc::clone(&migrations),
    ));
    let server = api::serve(&app, local, listeners);
    announce(&config, &cluster);
    notify(NotifyState::Ready);
    // It asks this agent like all others, so that this one has to be served.
    beside.spawn({
        let coordinator = Arc::clone(&coordinator);
        async move { coordinator.stand_by().await }
    });
    beside.spawn({
        let coordinator = Arc::clone(&coordinator);
        async move { coordinator.remember().await }
    });

    let signal = ends.next().await;
    tracing::info!(signal, "ending: no new work; guests run on");
    notify(NotifyState::Stopping);
    app.refuse_work();
    coordinator.stop();
    let finishing =
        async { tokio::join!(migrations.shutdown(), parking.let_go(), storage.shutdown()) };
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
    let kept = context.checkpoints.clone();
    // It says itself what is left.
    let _ = tokio::task::spawn_blocking(move || kept.wait()).await;
    server.stop().await;
    if let Err(error) = std::fs::remove_file(&config.socket) {
        tracing::warn!(socket = %config.socket.display(), %error, "not removed");
    }
    tracing::info!("ended");
    Ok(())
}

fn announce(config: &Config, cluster: &Cluster) {
    let version = env!("CARGO_PKG_VERSION");
    let socket = config.socket.display();
    tracing::info!(host = %config.host, version, %socket, "ready");
    match cluster.membership() {
        Some(membership) => {
            let (authority, members) = (&membership.authority, membership.members.len());
            tracing::info!(%authority, members, "member of a cluster");
        }
        None => tracing::info!("in no cluster: only the local socket is served"),
    }
}

/// Migrations from and to hosts that were removed do not go on.
async fn part_with_removed(cluster: Arc<Cluster>, migrations: Arc<Migrations>) {
    let mut changes = cluster.changes();
    while changes.changed().await.is_ok() {
        if let Some(membership) = cluster.membership() {
            migrations.part_with_all_but(&membership).await;
        }
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
