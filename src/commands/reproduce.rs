//! `reproduce`: measure one claim.

use std::path::Path;

use super::print;
use crate::cli::{DEFAULT_SEEDS, ReproduceArgs};
use crate::failure::Failure;
use crate::machine;
use crate::reproduce::{Request, find};
use crate::run::parse_seeds;

/// Measures a claim and writes its table and picture.
///
/// # Errors
/// [`Failure::Input`] for an unknown claim or a folder that cannot be used, [`Failure::Run`] if it fails on the way.
pub fn reproduce(args: &ReproduceArgs) -> Result<(), Failure> {
    let claim = find(&args.claim)?;
    let mut seeds = parse_seeds(&args.seeds)?;
    if args.quick {
        seeds.truncate(1);
    }
    let request = Request {
        out: args
            .out
            .clone()
            .unwrap_or_else(|| Path::new("results").join(claim.name)),
        seeds,
        quick: args.quick,
    };
    machine::set_threads(args.threads)?;
    let mut command = format!("pushforward reproduce {}", claim.name);
    if args.seeds != DEFAULT_SEEDS {
        command.push_str(&format!(" --seeds {}", args.seeds));
    }
    if args.quick {
        command.push_str(" --quick");
    }
    let text = claim.reproduce(&request, &command)?;
    if args.quiet {
        return Ok(());
    }
    print(&text)
}
