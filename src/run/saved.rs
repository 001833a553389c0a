//! The saved agent whose policy a run evaluates.

use pushforward_core::checkpoint::CheckpointStore;
use pushforward_sdrl::{EvaluatedPolicyConfig, ObjectiveConfig, SavedAgent, SavedCheckpoint};
use tch::Device;

use super::folder::RunFolder;
use super::session::hash;
use crate::config::{RunConfig, read};
use crate::failure::Failure;

/// Loads the agent that the objective names, and notes in the configuration which one it was; `None` where the objective names none.
///
/// # Errors
/// [`Failure::Input`] if there is no usable run of a control agent in the same environment, or it is not the agent noted before.
pub fn load_saved_agent(
    config: &mut RunConfig,
    device: Device,
) -> Result<Option<SavedAgent>, Failure> {
    let ObjectiveConfig::Evaluation {
        policy: EvaluatedPolicyConfig::Agent(named),
        ..
    } = &mut config.agent.objective
    else {
        return Ok(None);
    };
    let shown = named.run.display().to_string();
    let refuse = |message: &dyn std::fmt::Display| {
        Failure::input(format!("agent.objective.policy.run: {message}"))
    };
    let folder = RunFolder::open(&named.run).map_err(|error| refuse(&error))?;
    let own = read(&folder.config()).map_err(|error| refuse(&error))?;
    if own.env != config.env {
        let (got, expected) = (own.env.name(), config.env.name());
        return Err(refuse(&if got == expected {
            format!("{shown} is of {got} with other settings, expected the same [env]")
        } else {
            format!("{shown} is of {got}, expected {expected}")
        }));
    }
    let store = CheckpointStore::open(&folder.checkpoints(), &hash(&own)?);
    let (checkpoint, warnings) = match (named.updates, named.checkpoint) {
        (Some(updates), _) => store.load_at(updates).map(|found| (found, Vec::new())),
        (None, SavedCheckpoint::Latest) => store.load_latest(),
        (None, SavedCheckpoint::Best) => store.load_best(),
    }
    .map_err(|error| refuse(&error))?;
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
    let env = own
        .setup(None)
        .build_env()
        .map_err(|error| refuse(&error))?;
    let agent = SavedAgent::new(&own.agent, env.as_ref(), &checkpoint, named.epsilon, device)
        .map_err(|error| refuse(&format!("{shown}: {error}")))?;
    if let Some(expected) = &named.hash
        && expected != agent.hash()
    {
        return Err(refuse(&format!(
            "{shown} holds another agent at update {} (hash {:.12}, expected {expected:.12})",
            checkpoint.updates,
            agent.hash()
        )));
    }
    named.updates = Some(checkpoint.updates);
    named.hash = Some(agent.hash().to_owned());
    Ok(Some(agent))
}
