//! Two guests, one of which is to become the other.

use drover_hypervisor::{
    Guest, Machine, MachineEvents, MigrationProgress, MigrationSettings, MigrationStatus, Movable,
    Start,
};
use drover_types::ByteRate;

use super::{Place, Qemu, Running, status};

/// Random bytes in a guest's memory: enough to fill several multifd packets on each channel.
pub const CONTENT: usize = 24 << 20;

/// A rate at which nothing of that size arrives while a test looks at it.
pub const SLOW: Option<ByteRate> = Some(ByteRate(256 << 10));

pub fn multifd() -> MigrationSettings {
    MigrationSettings {
        channels: 3,
        ..MigrationSettings::default()
    }
}

/// Two guests of the same kind, the second waiting for the first.
pub struct Pair {
    pub place: Place,
    pub source: Running,
    pub destination: Running,
    pub content: Vec<u8>,
}

impl Pair {
    pub async fn new(from: &Qemu, to: &Qemu, machine: Option<&str>) -> Self {
        let place = Place::new();
        let content = place.content(CONTENT);
        let mut guest = place.filled(from);
        if let Some(machine) = machine {
            guest.machine = Some(format!("{machine},accel=tcg"));
        }
        let source = place.start(&guest, "source", Start::Run).await;
        let kind = source.machine_type().await.unwrap();
        let arriving = Guest {
            binary: to.0.clone(),
            ..guest.with_machine_type(&kind)
        };
        let destination = place.start(&arriving, "destination", Start::Incoming).await;
        Self {
            place,
            source,
            destination,
            content,
        }
    }

    /// Prepares both sides and lets the destination listen.
    pub async fn prepare(&self, settings: &MigrationSettings) {
        for side in [&self.source, &self.destination] {
            let applied = side.set_migration(settings).await.unwrap();
            assert_eq!(applied.left_out, [""; 0]);
        }
        self.destination
            .listen_incoming(&self.place.socket())
            .await
            .unwrap();
    }

    /// Begins to migrate and waits until memory is under way.
    pub async fn begin(&self) -> (MachineEvents, MachineEvents) {
        let events = (self.source.events(), self.destination.events());
        self.source.migrate(&self.place.socket()).await.unwrap();
        events
    }

    pub async fn migrate(&self, settings: &MigrationSettings) -> MigrationProgress {
        self.prepare(settings).await;
        let (mut source, mut destination) = self.begin().await;
        status(&mut source, MigrationStatus::Completed).await;
        status(&mut destination, MigrationStatus::Completed).await;
        self.source.migration().await.unwrap()
    }

    pub async fn assert_memory_is_equal(&self) {
        let memory = self.place.memory(&self.destination, CONTENT).await;
        assert!(memory == self.content, "the content differs");
    }
}
