use serde_json::{Value, json};

use super::machine::QemuMachine;
use crate::inside::{Inside, NetworkCard};
use crate::limits;
use crate::machine::MachineError;
use crate::qmp::excerpt;

const INSPECT: &str = "tell its devices";

/// Where devices are: with a name, without one, and those that QEMU makes by itself (`qom-list` in QEMU's `qapi/qom.json`).
const PLACES: [&str; 3] = [
    "/machine/peripheral",
    "/machine/peripheral-anon",
    "/machine/unattached",
];

/// Of a device's type: `child<virtio-net-pci>`.
const CARD: &str = "child<virtio-net-";

/// The object in it that is no card of its own.
const BACKEND: &str = "child<virtio-net-device>";

impl QemuMachine {
    pub(super) async fn look_inside(&self) -> Result<Inside, MachineError> {
        let kvm = self.tell(INSPECT, "query-kvm", Value::Null).await?;
        let mut inside = Inside {
            accelerated: kvm["enabled"].as_bool().unwrap_or(false),
            cards: Vec::new(),
        };
        for place in PLACES {
            let listed = self.tell(INSPECT, "qom-list", json!({"path": place})).await;
            let listed = match listed {
                // A machine without any has no such place.
                Err(MachineError::Refused { .. }) => continue,
                listed => listed?,
            };
            for name in cards(&listed) {
                if inside.cards.len() == limits::CARDS {
                    return Ok(inside);
                }
                // One that was taken out meanwhile is none.
                inside
                    .cards
                    .extend(self.card(&format!("{place}/{name}")).await?);
            }
        }
        Ok(inside)
    }

    async fn card(&self, path: &str) -> Result<Option<NetworkCard>, MachineError> {
        let mut values = Vec::new();
        for property in ["netdev", "mac", "mq", "host_mtu"] {
            let asked = json!({"path": path, "property": property});
            match self.tell(INSPECT, "qom-get", asked).await {
                Err(MachineError::Refused { .. }) => return Ok(None),
                value => values.push(value?),
            }
        }
        Ok(read(&values))
    }
}

/// Names of cards in a list of objects.
fn cards(listed: &Value) -> Vec<String> {
    let objects = listed.as_array().into_iter().flatten();
    let cards = objects.filter_map(|object| {
        let kind = object["type"].as_str()?;
        let is_card = kind.starts_with(CARD) && kind != BACKEND;
        is_card.then(|| object["name"].as_str().map(excerpt))?
    });
    cards.collect()
}

fn read(values: &[Value]) -> Option<NetworkCard> {
    let [netdev, mac, multiqueue, mtu] = values else {
        return None;
    };
    let mtu = mtu.as_u64().and_then(|mtu| u32::try_from(mtu).ok());
    Some(NetworkCard {
        netdev: excerpt(netdev.as_str()?),
        mac: excerpt(mac.as_str()?),
        multiqueue: multiqueue.as_bool()?,
        offered_mtu: mtu.filter(|mtu| *mtu > 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_told_from_all_else_and_what_is_no_answer_is_none() {
        let listed = json!([
            {"name": "net0", "type": "child<virtio-net-pci>"},
            {"name": "type", "type": "string"},
            {"name": "disk", "type": "child<virtio-blk-pci>"},
            {"name": "virtio-backend", "type": "child<virtio-net-device>"},
            {"type": "child<virtio-net-pci>"}, 7,
        ]);
        assert_eq!(cards(&listed), ["net0"]);
        assert_eq!(cards(&json!("nothing")), <[String; 0]>::default());
        let card = read(&[
            json!("n0"),
            json!("52:54:00:12:34:56"),
            json!(true),
            json!(9000),
        ])
        .unwrap();
        assert_eq!((card.multiqueue, card.offered_mtu), (true, Some(9000)));
        assert_eq!(read(&[json!("n0"), json!(7), json!(true), json!(0)]), None);
        assert_eq!(read(&[]), None);
    }
}
