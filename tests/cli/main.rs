//! The whole program, run as a user runs it.

mod bad_input;
mod common;
mod mean_field;
mod reproduce;
mod runs;
mod saved_agent;
