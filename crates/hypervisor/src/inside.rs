/// What a running guest was given, as far as it cannot be told from its arguments alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inside {
    /// Its processors are the hardware's, and not emulated.
    pub accelerated: bool,
    /// Its network cards of the kind that drivers for virtual machines know (virtio), at most
    /// [`limits::CARDS`](crate::limits::CARDS).
    pub cards: Vec<NetworkCard>,
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkCard {
    /// The name of what it is connected to, as in `netdev=`.
    pub netdev: String,
    /// Its address, in the hypervisor's notation: `52:54:00:12:34:56`.
    pub mac: String,
    /// It may have several queues.
    pub multiqueue: bool,
    /// The largest packet that it tells the guest, in bytes; none where it tells none.
    pub offered_mtu: Option<u32>,
}
