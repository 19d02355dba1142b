//! Larger packets below what stands on an interface, on real hosts: a bridge that follows or was set, a bond, a VLAN.

use super::*;

/// `n0` of `a` is in something of this name now, which has its address; `None`, with a line that says why, where there can be none.
async fn inside(test: &str, upper: &str, make: &[&str]) -> Option<Cluster> {
    let cluster = hosts(test).await?;
    for command in make {
        if let Err(why) = cluster.try_run("a", command) {
            println!("skipped, because this kernel has none such ({command}): {why}");
            return None;
        }
    }
    cluster.run("a", "ip addr del 10.78.0.1/24 dev n0");
    cluster.run("a", &format!("ip addr add 10.78.0.1/24 dev {upper}"));
    cluster.run("a", &format!("ip link set {upper} up"));
    cluster.carries(upper).await;
    Some(cluster)
}

impl Cluster {
    /// Waits until an interface of `a` has a carrier.
    async fn carries(&self, nic: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let facts = self.client("a").facts().await.unwrap().facts;
            if facts.nic(nic).unwrap().carrier {
                return;
            }
            assert!(Instant::now() < deadline, "{facts:#?}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn mtus<const N: usize>(&self, nics: [&str; N]) -> [u32; N] {
        let facts = self.client("a").facts().await.unwrap().facts;
        nics.map(|nic| facts.nic(nic).unwrap().mtu)
    }

    /// What the switch carries to `b`.
    fn carry(&self, bytes: u32) {
        self.run(SWITCH, &format!("ip link set b0 mtu {bytes}"));
    }
}

fn lost(nic: &str) -> String {
    format!(
        "{nic} 10.78.0.1 to b n0 10.78.0.2: packets of 9000 bytes there and 9000 back have to cross it"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_below_a_bridge_are_proved_by_the_bridge_and_go_back_with_it() {
    let make = ["ip link add lan type bridge", "ip link set n0 master lan"];
    let Some(cluster) = inside("bridge", "lan", &make).await else {
        return;
    };
    // One that nobody set.
    cluster.carry(1500);
    assert_eq!(cluster.mtus(["n0", "lan"]).await, [1500, 1500]);
    let why = cluster.taken_back(larger_packets()).await;
    assert!(why.contains(&lost("lan")), "{why}");
    assert_eq!(cluster.mtus(["n0", "lan"]).await, [1500, 1500]);
    cluster.carry(9000);
    let id = cluster.apply(larger_packets()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!(cluster.mtus(["n0", "lan"]).await, [9000, 9000]);
    cluster.undo(id).await;
    assert_eq!(cluster.mtus(["n0", "lan"]).await, [1500, 1500]);
    // One that somebody set.
    cluster.run("a", "ip link set lan mtu 9000");
    cluster.carry(1500);
    let why = cluster.taken_back(larger_packets()).await;
    assert!(why.contains(&lost("lan")), "{why}");
    assert_eq!(cluster.mtus(["n0", "lan"]).await, [1500, 9000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_of_a_member_that_held_its_bond_back_are_proved_by_the_bond_and_go_back_alone()
 {
    let make = [
        "ip link add bond0 type bond mode active-backup miimon 50",
        "ip link set n0 down",
        "ip link set n0 master bond0",
        "ip link set bond0 mtu 9000",
        "ip link set n0 mtu 1500",
    ];
    let Some(cluster) = inside("bond", "bond0", &make).await else {
        return;
    };
    cluster.carry(1500);
    assert_eq!(cluster.mtus(["n0", "bond0"]).await, [1500, 9000]);
    let why = cluster.taken_back(larger_packets()).await;
    assert!(why.contains(&lost("bond0")), "{why}");
    assert_eq!(cluster.mtus(["n0", "bond0"]).await, [1500, 9000]);
    cluster.carry(9000);
    let id = cluster.apply(larger_packets()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    cluster.undo(id).await;
    assert_eq!(cluster.mtus(["n0", "bond0"]).await, [1500, 9000]);
}

#[tokio::test(flavor = "multi_thread")]
async fn larger_packets_of_a_vlan_and_its_port_go_back_together_and_smaller_ones_below_it_are_refused()
 {
    let Some(cluster) = hosts("vlan").await else {
        return;
    };
    for (host, number) in [("a", 1), ("b", 2)] {
        let make = "ip link add link n0 name n0.7 type vlan id 7";
        if let Err(why) = cluster.try_run(host, make) {
            println!("skipped, because this kernel has no VLANs: {why}");
            return;
        }
        cluster.run(host, &format!("ip addr add 10.78.7.{number}/24 dev n0.7"));
        cluster.run(host, "ip link set n0.7 up");
    }
    let both = || plan([packets("n0", 1500, 9000), packets("n0.7", 1500, 9000)]);
    cluster.carry(1500);
    let why = cluster.taken_back(both()).await;
    // Both, though one is asked after the other.
    let of_vlan =
        "n0.7 10.78.7.1 to b n0.7 10.78.7.2: packets of 9000 bytes there and 9000 back have to";
    assert!(why.contains(LOST) && why.contains(of_vlan), "{why}");
    assert_eq!(cluster.mtus(["n0", "n0.7"]).await, [1500, 1500]);
    cluster.carry(9000);
    let id = cluster.apply(both()).await;
    let view = cluster.ended(id).await;
    assert_eq!(view.change.state, ChangeState::Applied, "{view:#?}");
    assert_eq!(cluster.mtus(["n0", "n0.7"]).await, [9000, 9000]);
    let why = cluster.taken_back(plan([packets("n0", 9000, 1500)])).await;
    assert!(
        why.contains("n0.7 stands on n0 with packets of 9000 bytes"),
        "{why}"
    );
    assert_eq!(cluster.mtus(["n0", "n0.7"]).await, [9000, 9000]);
    cluster.undo(id).await;
    assert_eq!(cluster.mtus(["n0", "n0.7"]).await, [1500, 1500]);
}
