//! Replay, rollout, networks, optimiser, checkpoints and the trainer loop shared by every agent.
