//! The guest: booted by an agent, moved, and heard on whichever host it is.

use std::time::Duration;

use drover_api::{
    ClientError, ErrorCode, MigrateRequest, MigrationPhase, MigrationView, VmDefinition,
};
use drover_lab::{Console, Image, define, serial_socket};
use drover_types::{MigrationId, VmName};
use tokio::task::AbortHandle;

use super::{A, Hosts, PATIENCE, until};

/// Transferred by then, a migration is well under way: a tenth of what there is.
const MIDWAY: u64 = 8 << 20;

/// Spares an emulated kernel what costs it a fifth of its boot.
const QUICKLY: &str = " quiet nokaslr mitigations=off cryptomgr.notests no_timer_check ";

/// A guest that was booted.
pub struct Guest {
    pub definition: VmDefinition,
    pub console: Console,
    /// Waits for the guest on the host that it is to move to.
    attaching: Option<AbortHandle>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Some(attaching) = &self.attaching {
            attaching.abort();
        }
    }
}

/// The guest's name.
pub fn name() -> VmName {
    "guest".parse().unwrap()
}

/// The code of a refusal, and all that the operator is told.
pub fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> (ErrorCode, String) {
    let error = result.unwrap_err();
    let refusal = error.refusal().unwrap_or_else(|| panic!("{error}"));
    let next = refusal.next.as_deref().unwrap_or("NO NEXT STEP");
    (refusal.code, format!("{}; {next}", refusal.message))
}

impl Hosts {
    /// Its definition, not given to an agent.
    pub async fn definition(&self) -> VmDefinition {
        self.definition_of(&name()).await
    }

    /// That of a guest like it with this name.
    pub async fn definition_of(&self, name: &VmName) -> VmDefinition {
        let image = Image::build(self.lab().folder(), &[]).await.unwrap();
        let settings = &self.lab().state().guests[0];
        let mut definition = define(name, settings, &image, &self.lab().here()).unwrap();
        for words in definition
            .args
            .iter_mut()
            .filter(|arg| arg.contains(" quiet "))
        {
            *words = words.replace(" quiet ", QUICKLY);
        }
        definition
    }

    /// Gives a definition to a host's agent.
    pub fn define(&self, host: usize, definition: &VmDefinition) {
        let file = self.host(host).definitions();
        let file = file.join(format!("{}.toml", definition.name));
        std::fs::write(file, toml::to_string(definition).unwrap()).unwrap();
    }

    /// Boots the guest on the first host, and waits until its memory is filled.
    pub async fn boot(&mut self) {
        let definition = self.definition().await;
        self.boot_from(definition).await;
    }

    /// The same from a definition of the test's own.
    pub async fn boot_from(&mut self, definition: VmDefinition) {
        let console = self.boot_another(&definition).await;
        self.guest = Some(Guest {
            definition,
            console,
            attaching: None,
        });
    }

    /// Boots a guest beside the one that is looked after.
    pub async fn boot_another(&self, definition: &VmDefinition) -> Console {
        self.define(A, definition);
        self.client(A).start_vm(&definition.name).await.unwrap();
        let console = Console::default();
        let serial = self.host(A).socket(&serial_socket(&definition.name));
        console.attach(&serial, PATIENCE).await.unwrap();
        console.wait_ready().await.unwrap();
        console
    }

    /// Asks for a migration to the other host.
    pub async fn migrate(&mut self, from: usize) -> Result<MigrationView, ClientError> {
        self.listen_on(1 - from);
        let request = self.request(from, None);
        self.client(from).migrate(&name(), &request).await
    }

    /// Hears the guest on a host from when it is there.
    pub fn listen_on(&mut self, host: usize) {
        let place = self.host(host);
        if let Some(guest) = &mut self.guest {
            let serial = place.socket(&serial_socket(&guest.definition.name));
            let console = guest.console.clone();
            let attach = tokio::spawn(async move {
                // A guest that never comes is the test's business.
                let _ = console.attach(&serial, PATIENCE * 2).await;
            });
            if let Some(earlier) = guest.attaching.replace(attach.abort_handle()) {
                earlier.abort();
            }
        }
    }

    /// What a migration to the other host is asked for with.
    pub fn request(&self, from: usize, id: Option<MigrationId>) -> MigrateRequest {
        MigrateRequest {
            to: self.host(1 - from).name.parse().unwrap(),
            convergence: Default::default(),
            channels: None,
            lanes_per_path: None,
            reduction: None,
            with_disks: false,
            id,
        }
    }

    /// Begins a migration and waits until memory is being carried.
    pub async fn migrate_midway(&mut self, from: usize) -> MigrationId {
        let id = self.migrate(from).await.unwrap().id;
        self.midway(from, id).await;
        id
    }

    /// Waits until memory is being carried.
    pub async fn midway(&self, from: usize, id: MigrationId) {
        let client = self.client(from);
        until(PATIENCE, async || {
            let view = client.migration(id).await.unwrap();
            assert!(!view.phase.has_ended(), "{view:#?}");
            let midway =
                view.phase == MigrationPhase::Transferring && view.bytes.transferred.0 >= MIDWAY;
            if midway {
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }

    /// How a migration ended, as one of its hosts tells it.
    pub async fn ended(&self, host: usize, id: MigrationId) -> MigrationView {
        self.phase_when(host, id, PATIENCE, MigrationPhase::has_ended)
            .await
    }

    /// A migration once its phase is the one waited for.
    pub async fn phase_when(
        &self,
        host: usize,
        id: MigrationId,
        within: Duration,
        accept: impl Fn(MigrationPhase) -> bool,
    ) -> MigrationView {
        let client = self.client(host);
        until(within, async || {
            let view = client
                .migration(id)
                .await
                .map_err(|error| error.to_string())?;
            if accept(view.phase) {
                Ok(view)
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await
    }

    /// Waits until little of the guest is left to carry, or nothing any more.
    pub async fn nearly_done(&self, host: usize, id: MigrationId) {
        use MigrationPhase::{Connecting, Preparing, Transferring};
        let client = self.client(host);
        until(PATIENCE, async || {
            let view = client.migration(id).await.unwrap();
            let early = matches!(view.phase, Preparing | Connecting | Transferring);
            let bytes = view.bytes;
            let near = bytes.total.0 > 0 && bytes.remaining.0 < bytes.total.0 / 4;
            if near || !early {
                Ok(())
            } else {
                Err(format!("{view:#?}"))
            }
        })
        .await;
    }

    /// Moves the guest to the other host; what the source tells of it.
    pub async fn move_from(&mut self, from: usize) -> MigrationView {
        let id = self.migrate(from).await.unwrap().id;
        let view = self.ended(from, id).await;
        assert_eq!(view.phase, MigrationPhase::Completed, "{view:#?}");
        view
    }
}
