//! Divergences between point clouds through their one-dimensional shadows.
