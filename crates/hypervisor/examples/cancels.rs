//! Counts how cancelled migrations end, with a peer that closes its sockets or one that reads on.
//!
//! `cargo run -p drover-hypervisor --example cancels -- /usr/bin/qemu-system-x86_64 100 qemu|sink`

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drover_hypervisor::{
    Guest, MigrationAddress, MigrationSettings, Movable, QemuLauncher, QemuMachine, Start,
};
use drover_types::{ByteRate, Bytes};
use tokio::net::UnixListener;

type Failure = Box<dyn Error>;

/// A cancel that has not ended by then will not.
const PATIENCE: Duration = Duration::from_secs(8);

const USAGE: &str = "arguments: QEMU's path, how many cancels, and the peer: qemu or sink";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [qemu, count, peer] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..count.parse::<u32>()? {
        let end = cancelled(qemu.into(), peer == "sink").await?;
        *ends.entry(end).or_default() += 1;
    }
    println!("{qemu} {peer} {ends:?}");
    Ok(())
}

/// How one migration ended that was cancelled as soon as it was active.
async fn cancelled(qemu: PathBuf, drained: bool) -> Result<String, Failure> {
    let place = tempfile::tempdir()?;
    let socket = place.path().join("migration.sock");
    let settings = MigrationSettings {
        channels: 3,
        max_bandwidth: Some(ByteRate(256 << 10)),
        ..MigrationSettings::default()
    };
    let guest = guest(qemu, place.path())?;
    let address = MigrationAddress::Unix(socket.clone());
    let launcher = QemuLauncher::new();
    let source = launcher
        .start(&guest, &place.path().join("a"), Start::Run)
        .await?;
    source.set_migration(&settings).await?;
    let destination = if drained {
        drain(UnixListener::bind(socket)?);
        None
    } else {
        let directory = place.path().join("b");
        let destination = launcher.start(&guest, &directory, Start::Incoming).await?;
        destination.set_migration(&settings).await?;
        destination.listen_incoming(&address).await?;
        Some(destination)
    };
    source.migrate(&address).await?;
    while source.migration().await?.status.as_str() != "active" {}
    source.cancel().await?;
    let end = end(&source).await?;
    source.kill().await?;
    if let Some(destination) = destination {
        destination.kill().await?;
    }
    Ok(end)
}

async fn end(source: &QemuMachine) -> Result<String, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = source.migration().await?.status;
        if status.is_final() || Instant::now() > deadline {
            return Ok(status.to_string());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads whatever comes to its end.
fn drain(listener: UnixListener) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move { tokio::io::copy(&mut stream, &mut tokio::io::sink()).await });
        }
    });
}

/// A guest with 24 MiB of content that is not zero. With machine types before 8.2 the channels
/// are brought in step more often, which is when it happens.
fn guest(binary: PathBuf, place: &Path) -> Result<Guest, Failure> {
    let content = place.join("content");
    std::fs::write(&content, vec![0x5a; 24 << 20])?;
    let loader = format!(
        "loader,file={},addr=0x1000000,force-raw=on",
        content.display()
    );
    let args = ["-nodefaults", "-device", loader.as_str()].map(str::to_owned);
    Ok(Guest {
        name: "cancelled".parse()?,
        memory: Bytes(64 << 20),
        vcpus: 1,
        binary,
        machine: Some("pc-q35-7.2,accel=tcg".into()),
        args: args.into(),
    })
}
