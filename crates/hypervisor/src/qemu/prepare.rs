use drover_types::Throttle;
use serde_json::Value;

use super::machine::QemuMachine;
use super::settings::{self, Offered};
use crate::machine::{MachineError, Movable};
use crate::qmp::excerpt;
use crate::settings::{AppliedSettings, MigrationSettings};

const PREPARE: &str = "prepare the migration";

impl QemuMachine {
    pub(super) async fn apply(
        &self,
        settings: &MigrationSettings,
    ) -> Result<AppliedSettings, MachineError> {
        if let Some(problem) = settings.problem() {
            return Err(MachineError::Invalid {
                operation: PREPARE,
                problem,
            });
        }
        let capabilities = self
            .tell(PREPARE, "query-migrate-capabilities", Value::Null)
            .await?;
        let parameters = self
            .tell(PREPARE, "query-migrate-parameters", Value::Null)
            .await?;
        let mut offered = Offered::read(&capabilities, &parameters);
        let applied = match self.order(settings, &offered).await {
            // Offered by every QEMU from 8.1 on, and refused without KVM's dirty ring.
            Err(MachineError::Refused { .. })
                if matches!(settings.throttle, Some((Throttle::DirtyLimit, _)))
                    && offered.withdraw_dirty_limit() =>
            {
                self.order(settings, &offered).await
            }
            ordered => ordered,
        }?;
        if settings.postcopy {
            let multifd = settings.channels > 0;
            return self.allow_postcopy(multifd, &offered, applied).await;
        }
        Ok(applied)
    }

    /// By an order of its own, so that what is refused is this and nothing else.
    async fn allow_postcopy(
        &self,
        multifd: bool,
        offered: &Offered,
        mut applied: AppliedSettings,
    ) -> Result<AppliedSettings, MachineError> {
        let Some(postcopy) = settings::postcopy(offered) else {
            applied.left_out.push(settings::POSTCOPY.to_owned());
            return Ok(applied);
        };
        let version = self.version();
        let refused = if multifd && !version.takes_postcopy_with_multifd() {
            format!("QEMU {version} does not take it with multifd channels")
        } else {
            let allowed = self.tell(PREPARE, "migrate-set-capabilities", postcopy);
            match allowed.await {
                Ok(_) => {
                    applied.postcopy = true;
                    return Ok(applied);
                }
                Err(MachineError::Refused { reason, .. }) => excerpt(&reason),
                Err(error) => return Err(error),
            }
        };
        let left_out = format!("{} ({refused})", settings::POSTCOPY);
        applied.left_out.push(left_out);
        Ok(applied)
    }

    async fn order(
        &self,
        settings: &MigrationSettings,
        offered: &Offered,
    ) -> Result<AppliedSettings, MachineError> {
        let orders = settings::orders(settings, offered).map_err(|missing| {
            let version = self.version();
            MachineError::Unsupported {
                operation: PREPARE,
                missing,
                version,
            }
        })?;
        self.tell(PREPARE, "migrate-set-capabilities", orders.capabilities)
            .await?;
        self.tell(PREPARE, "migrate-set-parameters", orders.parameters)
            .await?;
        Ok(orders.applied)
    }
}
