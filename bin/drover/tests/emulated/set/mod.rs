//! What is set on real drivers, on the emulated host, by its agent.

mod agent;
mod changes;
mod dcb;
mod interrupts;
mod links;
