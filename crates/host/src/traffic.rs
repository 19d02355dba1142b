//! What interfaces have carried so far.

use std::collections::BTreeMap;

use drover_tune::facts::Traffic;
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};

use crate::error::HostError;
use crate::interfaces::ask;

/// What each interface of this process's network namespace has counted since it was made.
///
/// # Errors
/// As [`crate::interfaces`].
pub async fn traffic() -> Result<BTreeMap<String, Traffic>, HostError> {
    let (links, _) = ask().await?;
    Ok(links.iter().filter_map(counted).collect())
}

fn counted(link: &LinkMessage) -> Option<(String, Traffic)> {
    let (mut name, mut traffic) = (None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(told) => name = Some(told.clone()),
            LinkAttribute::Stats64(told) => {
                traffic = Some(Traffic {
                    received: told.rx_bytes,
                    sent: told.tx_bytes,
                });
            }
            _ => {}
        }
    }
    name.zip(traffic)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn what_was_sent_is_counted_by_the_interface_that_it_crossed() {
        let of_loopback = async || traffic().await.unwrap()["lo"];
        let here = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = of_loopback().await;
        here.send_to(&[0; 1000], here.local_addr().unwrap())
            .unwrap();
        let after = of_loopback().await;
        assert!(after.sent - before.sent >= 1000, "{before:?} {after:?}");
        assert!(after.received - before.received >= 1000);
    }
}
