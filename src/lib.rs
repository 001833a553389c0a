//! The command-line program: configuration layers, run folders, sinks, plots and commands on top of the agents.

pub mod agents;
pub mod cli;
pub mod commands;
pub mod config;
pub mod failure;
pub mod machine;
pub mod plots;
pub mod presets;
pub mod reproduce;
pub mod run;
pub mod sinks;
