//! A guest's network cards, from both of the arguments that make one.

use crate::arguments::Value;
use crate::facts::{Argument, Card, Guest};
use crate::finding::Because;

/// A network card, and what it is connected to.
#[derive(Debug)]
pub struct Net<'g> {
    /// What its finding is about: the name of what it is connected to.
    pub name: String,
    /// The argument that connects it: `-netdev`, or `-nic`, which makes the card as well.
    pub connects: &'g Argument,
    /// Its value.
    pub connection: Value,
    /// The card's own argument; none with `-nic`.
    pub makes: Option<(&'g Argument, Value)>,
    /// The card of the running guest.
    pub card: Option<&'g Card>,
}

/// Cards that are the driver's own (virtio-net), in the order of what they are connected to.
///
/// # Errors
/// They are written in a way that is not read here.
pub fn nets(guest: &Guest) -> Result<Vec<Net<'_>>, Because> {
    let mut nets = Vec::new();
    for argument in &guest.arguments {
        let Some(text) = &argument.value else {
            continue;
        };
        let value = Value::of(text);
        let is_net = matches!(argument.option.as_str(), "-netdev" | "-nic");
        if is_net && value.is_json() {
            return Err(Because(format!(
                "its {} is written as JSON",
                argument.option
            )));
        }
        match argument.option.as_str() {
            "-netdev" => nets.extend(of_netdev(guest, argument, value)),
            "-nic" => {
                let model = value.get("model").unwrap_or_default();
                if model.starts_with("virtio") {
                    let name = value
                        .get("id")
                        .map_or_else(|| format!("nic{}", nets.len()), str::to_owned);
                    let card = card(guest, &name);
                    nets.push(Net {
                        name,
                        connects: argument,
                        connection: value,
                        makes: None,
                        card,
                    });
                }
            }
            _ => {}
        }
    }
    Ok(nets)
}

/// None where the card is another one.
fn of_netdev<'g>(guest: &'g Guest, argument: &'g Argument, value: Value) -> Option<Net<'g>> {
    let name = value.get("id")?.to_owned();
    let mut devices = guest
        .arguments
        .iter()
        .filter(|other| other.option == "-device");
    let makes = devices.find_map(|device| {
        let card = Value::of(device.value.as_deref()?);
        let is_its = card.kind().starts_with("virtio-net") && card.get("netdev") == Some(&name);
        is_its.then_some((device, card))
    })?;
    let card = card(guest, &name);
    Some(Net {
        name,
        connects: argument,
        connection: value,
        makes: Some(makes),
        card,
    })
}

fn card<'g>(guest: &'g Guest, name: &str) -> Option<&'g Card> {
    let cards = guest.seen.known()?.cards.known()?;
    cards.iter().find(|card| card.netdev == name)
}

impl Net<'_> {
    /// Queues that the host's end has.
    pub fn given(&self) -> u32 {
        let by_number = self.connection.number("queues");
        let by_files = || Some(self.connection.get("fds")?.split(':').count() as u32);
        by_number.or_else(by_files).unwrap_or(1)
    }

    /// The card may have more than one.
    pub fn multiqueue(&self) -> bool {
        let defined = self.makes.as_ref().and_then(|(_, card)| card.is_on("mq"));
        self.card
            .map_or(defined == Some(true), |card| card.multiqueue)
    }

    /// Queues that the guest may use.
    pub fn queues(&self) -> u32 {
        if self.multiqueue() { self.given() } else { 1 }
    }

    /// The largest packet that it tells the guest.
    pub fn offered_mtu(&self) -> Option<u32> {
        let defined = || {
            self.makes
                .as_ref()?
                .1
                .number("host_mtu")
                .filter(|mtu| *mtu > 0)
        };
        self.card.map_or_else(defined, |card| card.offered_mtu)
    }
}
