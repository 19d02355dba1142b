//! What is done to hosts: on their wires, in their routes and addresses, to their TCP.

use super::{Break, among, done, harmed};

/// 135 Mbit/s on a switch's `up0`, of which hosts with an odd and an even last byte of their address have the same share, so that no chance decides who falls short;
/// and acknowledgements wait for nothing, so that what crosses the other way does not. `htb` is the one queue for that which every kernel of a lab has.
const FAIR_UPLINK: &str = "switch: tc qdisc add dev up0 root handle 1: htb default 20 && \
     tc class add dev up0 parent 1: classid 1:1 htb rate 135mbit burst 64kb cburst 64kb quantum 65536 && \
     tc class add dev up0 parent 1:1 classid 1:10 htb rate 5mbit ceil 135mbit prio 0 burst 64kb cburst 64kb quantum 65536 && \
     for class in 20 30; do \
     tc class add dev up0 parent 1:1 classid 1:$class htb rate 65mbit ceil 135mbit prio 1 burst 64kb cburst 64kb quantum 65536 && \
     tc qdisc add dev up0 parent 1:$class bfifo limit 512kb || exit 1; done && \
     tc filter add dev up0 parent 1: protocol ip prio 1 u32 match u16 0 0xff00 at 2 flowid 1:10 && \
     tc filter add dev up0 parent 1: protocol ip prio 2 u32 match u32 1 1 at 12 flowid 1:30";

/// 40 Mbit/s for large packets of TCP to the first host while two others or more send them, and no limit for one alone: a packet is counted where
/// another host sent one within a tenth of a second. So a switch's port behaves whose buffers hold what one sends, and not what several do:
/// where the rate of all is that of one, as loads of a lab have it, nothing else tells these apart.
const SHALLOW_PORT: &str = "a: nft 'add table netdev broken; \
     add chain netdev broken several; \
     add rule netdev broken several limit rate over 5 mbytes/second burst 256 kbytes drop; \
     add chain netdev broken nic1 { type filter hook ingress device nic1 priority 0; }; \
     add rule netdev broken nic1 ip protocol != tcp accept; \
     add rule netdev broken nic1 meta length < 1000 accept' && \
     for one in 2 3 4; do \
     nft \"add set netdev broken of$one { type ipv4_addr; size 16; flags dynamic, timeout; timeout 100ms; }; \
     add rule netdev broken nic1 ip saddr 10.77.1.$one update @of$one { ip daddr }\" || exit 1; done && \
     for one in 2 3 4; do for other in 2 3 4; do [ $one = $other ] || \
     nft add rule netdev broken nic1 ip saddr 10.77.1.$one ip daddr @of$other goto several || exit 1; done; done";

pub(super) const DONE: &[Break] = &[
    done(
        "mtu-one-side",
        "one end of a network takes 1500 bytes, the other 9000",
        "pair-mtu",
        "a and b nic1",
        &["b: ip link set nic1 mtu 1500"],
    ),
    harmed(
        "mtu-between",
        "both ends take 9000 bytes, and larger packets than 1500 vanish between them",
        "path-mtu",
        "a and b nic1",
        "large nic=1 above=1500",
    ),
    harmed(
        "cut",
        "all packets of a NIC vanish, and its link stays up",
        "path-reach",
        "a and b nic1",
        "cut nic=1",
    ),
    done(
        "firewall",
        "one host keeps UDP and TCP out of a NIC",
        "path-reach",
        "a and b nic1",
        &["b: nft 'add table inet broken; \
             add chain inet broken input { type filter hook input priority 0; }; \
             add rule inet broken input iifname nic1 meta l4proto { tcp, udp } drop'"],
    ),
    done(
        "loss",
        "of packets that arrive at one end a fifth is lost",
        "path-loss",
        "a and b nic1",
        &["b: nft 'add table netdev broken; \
             add chain netdev broken nic1 { type filter hook ingress device nic1 priority 0; }; \
             add rule netdev broken nic1 numgen random mod 5 == 0 drop'"],
    ),
    done(
        "wrong-route",
        "a route that was left behind leads to a peer by another NIC",
        "path-arrival",
        "b and a nic1",
        &["a: ip route add 10.77.1.2/32 via 10.77.0.2 dev nic0"],
    ),
    done(
        "one-network",
        "two NICs of each host are in one network, so that all is sent by the first",
        "path-arrival",
        "a and b nic1",
        &[
            "a: ip address replace 10.77.0.101/24 dev nic1",
            "a: ip address delete 10.77.1.1/24 dev nic1",
            "b: ip address replace 10.77.0.102/24 dev nic1",
            "b: ip address delete 10.77.1.2/24 dev nic1",
        ],
    ),
    done(
        "same-address",
        "two hosts have the same address on a network",
        "pair-address",
        "a and b nic1",
        &[
            "b: ip address delete 10.77.1.2/24 dev nic1",
            "b: ip address add 10.77.1.1/24 dev nic1",
        ],
    ),
    done(
        "flaps",
        "a carrier came and went all the time",
        "link-flaps",
        "a nic1",
        // The rule allows ten changes, and one a day.
        &[
            "b: for turn in $(seq $((10 + $(cut -d. -f1 /proc/uptime) / 86400))); do \
             ip link set nic1 down; ip link set nic1 up; done",
        ],
    ),
    done(
        "window",
        "TCP's windows are not scaled",
        "tcp-window",
        "b",
        &["b: sysctl -qw net.ipv4.tcp_window_scaling=0"],
    ),
    done(
        "timestamps",
        "TCP has no time stamps",
        "tcp-timestamps",
        "b",
        &["b: sysctl -qw net.ipv4.tcp_timestamps=0"],
    ),
    done(
        "send-buffer",
        "a connection may have 256 KiB on its way, however fast its line is",
        "tcp-buffers",
        "b",
        &["b: sysctl -qw net.ipv4.tcp_wmem='4096 16384 262144'"],
    ),
    done(
        "receive-buffer",
        "a connection may have 256 KiB arrive ahead of its reader, however fast its line is",
        "tcp-buffers",
        "b",
        &["b: sysctl -qw net.ipv4.tcp_rmem='4096 131072 262144'"],
    ),
    harmed(
        "slow-line",
        "a line carries 30 Mbit/s, and links say that it has 10 Gbit/s",
        "path-rate",
        "a and b nic1",
        "rate nic=1 to=30mbit",
    ),
    among(
        4,
        done(
            "uplink",
            "two hosts send to two others by a line between two switches that carries as much as one of them sends",
            "path-together",
            "a nic1",
            &[
                "switch: ip link add far1 type bridge && ip link set far1 mtu 9000 up && \
                 ip link set nic1c master far1 && ip link set nic1d master far1 && \
                 ip link add up0 mtu 9000 type veth peer name up1 mtu 9000 && \
                 ip link set up0 master net1 up && ip link set up1 master far1 up",
                FAIR_UPLINK,
            ],
        ),
    ),
    among(
        4,
        done(
            "incast",
            "the port to one host carries what another one sends, and little more than half of it once several send",
            "path-incast",
            "a",
            &[SHALLOW_PORT],
        ),
    ),
];
