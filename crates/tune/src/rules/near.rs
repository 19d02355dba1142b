//! Which processors an adapter is near: nobody's guess where firmware does not say.

use drover_types::CpuSet;

use crate::facts::{Host, Nic, Node};
use crate::finding::Because;

/// The processors near an adapter: all of a host of one node.
pub(super) fn near(host: &Host, nic: &Nic) -> Result<CpuSet, Because> {
    let nodes = host.processors.nodes.get()?;
    if nodes.len() < 2 {
        return Ok(host.processors.online.get()?.clone());
    }
    let near = of_slot(nic)?;
    home(nodes, near)?;
    Ok(near.clone())
}

/// The node that an adapter's slot is near, of several.
pub(super) fn home<'h>(nodes: &'h [Node], near: &CpuSet) -> Result<&'h Node, Because> {
    let mut all = nodes.iter().filter(|node| !node.cpus.and(near).is_empty());
    match (all.next(), all.next()) {
        (Some(only), None) => Ok(only),
        // Then the kernel says that it is near all of them.
        _ => Err("its firmware does not say which node its slot is near (numa_node is -1)".into()),
    }
}

fn of_slot(nic: &Nic) -> Result<&CpuSet, Because> {
    let near = nic.pci.get()?.near.as_ref().filter(|near| !near.is_empty());
    near.ok_or_else(|| "the kernel does not tell which processors its slot is near".into())
}
