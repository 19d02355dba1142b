//! What the agent shows and takes, one file per noun.

pub mod change;
pub mod checkpoint;
pub mod cluster;
pub mod codec;
pub mod cordon;
pub mod data_path;
pub mod doctor;
pub mod event;
pub mod expansion;
pub mod host;
pub mod incoming;
pub mod interrupts;
pub mod kept;
pub mod latency;
pub mod limit;
pub mod migration;
pub mod park;
pub mod paths;
pub mod plan;
pub mod postcopy;
pub mod reduction;
pub mod resolve;
pub mod run;
pub mod security;
pub mod traffic;
pub mod vm;
