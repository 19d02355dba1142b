//! What the kernel tells of its own objects, on the emulated host.

mod anew;
mod bonds;
mod dcb;
mod drivers;
mod rdma;
mod teams;
