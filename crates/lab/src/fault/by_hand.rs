//! Faults in a lab that is up, as a person wants them: from now on, until they are taken back.

use anyhow::{Context, Result, bail};

use super::{Fault, Harm, Moment, NewRate, Side, Which, harm, heal};
use crate::lab::Lab;
use crate::operate;
use crate::settings::LabName;

/// Does a fault to a lab's NICs now. The guest's host counts as the source.
///
/// # Errors
/// No such lab is up, the fault has a time of its own, or what `nft`, `tc` or `ip` say.
pub async fn harm_now(name: &LabName, fault: &Fault) -> Result<()> {
    if fault.at != Moment::Percent(0.0) || fault.lasting.is_some() || fault.harm.every().is_some() {
        bail!(
            "a fault by hand begins now and lasts until `drover lab heal{}`: leave at=, for= and \
             every= away",
            name.option()
        );
    }
    let status = operate::status(name).await?;
    let status = status.with_context(|| operate::none_up(name))?;
    let runs = |host: &operate::HostStatus| Some(&host.host) == status.guest_on.as_ref();
    let source = status.hosts.iter().position(runs).unwrap_or_default();
    let state = Lab::peek(name)?.with_context(|| operate::none_up(name))?;
    harm(&state.lab, source, fault).await
}

/// Makes every NIC of a lab as it was made.
///
/// # Errors
/// No such lab is up, or what `nft`, `tc` or `ip` say; all of it was tried.
pub async fn heal_all(name: &LabName) -> Result<()> {
    let state = Lab::peek(name)?.with_context(|| operate::none_up(name))?;
    let every = None;
    // One of each kind; a name comes first, since the others need it.
    let harms = [
        Harm::Rename,
        Harm::Down {
            from: Side::Source,
            every,
        },
        Harm::Rate(NewRate::Part(1.0)),
        Harm::Large { above: 1500 },
        Harm::Cut { from: None, every },
    ];
    let faults = harms.map(|harm| Fault {
        harm,
        nics: Which::All,
        at: Moment::Percent(0.0),
        lasting: None,
    });
    heal(&state.lab, &faults).await
}
