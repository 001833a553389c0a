//! Sliced distributional reinforcement learning of vector returns.
