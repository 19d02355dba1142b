//! One link of this host that is set as somebody wants it.

use drover_api::{ErrorCode, LinkRequest, LinkSetting, LinkView, Refusal};
use drover_change::{Plan, Planned};
use drover_tune::facts::Host;
use drover_tune::{Disruption, LinkError, LinkStep, LinkWish};
use jiff::Timestamp;

use super::{Changes, boot};
use crate::doctor;

/// In the place of a rule: no finding wants it.
const BY: &str = "nic-set";

impl Changes {
    /// Begins to set a link, by a change of its own. It has to come up again, or all is as before.
    ///
    /// # Errors
    /// It cannot be set, or is so already; nothing was changed then.
    pub async fn set_link(&self, request: LinkRequest) -> Result<LinkView, Refusal> {
        let facts = doctor::facts(&self.context).await?.facts;
        let LinkStep { step, warnings } = wanted(&facts, &request)?;
        let change = Planned {
            rule: BY.to_owned(),
            nic: Some(request.nic.clone()),
            disruption: Disruption::BouncesLink,
            why: "somebody wants the link so".to_owned(),
            steps: vec![step],
        };
        let plan = Plan {
            host: self.host().clone(),
            boot: boot()?,
            made_at: Timestamp::now(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            changes: vec![change],
            lasting: None,
        };
        let change = self.apply_plan(plan, [request.nic].into(), request.force);
        let change = change.await?;
        Ok(LinkView { change, warnings })
    }
}

fn wanted(host: &Host, request: &LinkRequest) -> Result<LinkStep, Refusal> {
    let nic = host.nic(&request.nic).ok_or_else(|| {
        let names: Vec<&str> = host.nics.iter().map(|nic| nic.name.as_str()).collect();
        let message = format!("{} has no interface {:?}", host.name, request.nic);
        Refusal::new(ErrorCode::NoSuchNic, message)
            .next(format!("name one of these: {}", names.join(", ")))
    })?;
    let wish = match request.setting {
        LinkSetting::Speed => LinkWish::speed(&request.to),
        LinkSetting::Fec => LinkWish::correction(&request.to),
    };
    let step = wish.and_then(|wish| wish.step(host, nic));
    step.map_err(|error| {
        let (host, nic) = (&host.name, &nic.name);
        let next = match &error {
            LinkError::Off { .. } => format!("`ip link set dev {nic} up` on {host}, and again"),
            LinkError::Upper { .. } => format!("`drover nic list {host}` shows the adapters"),
            LinkError::Untold { .. } => format!(
                "without knowing what is set nothing could be taken back: set it on {host} by hand, with ethtool"
            ),
            _ => format!("`drover nic show {host} {nic}` shows what it can and what is set"),
        };
        Refusal::new(ErrorCode::LinkNotSet, error.to_string()).next(next)
    })
}
