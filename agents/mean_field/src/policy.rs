//! The policy network: probabilities of every action in every individual state, given what is public.
//!
//! The first layer over [state; public input] is computed once for each state and once for each (time, path) and added, in place of once for
//! each (time, path, state). Values and gradients are matrix products over blocks of states, without an autograd graph.

use std::ops::Range;

use pushforward_core::{
    dense::ParameterValues,
    network::Linear,
    parameters::{ParameterBuilder, ParameterLayout},
};
use pushforward_envs::mean_field::{ActionKind, GameSpec};
use rayon::prelude::*;

/// States that one worker computes at a time: their activations fit a cache.
const BLOCK: usize = 128;

/// Parts that the gradient is summed in, whatever the number of threads.
const PARTS: usize = 16;

/// Smallest distance of the parameters of a Beta density from 1, which keeps it unimodal.
const BETA_MARGIN: f32 = 1e-6;

/// How an individual state enters.
#[derive(Clone, Debug)]
enum StateMap {
    /// A learned row for each state: index of `[S, W]`.
    Table(usize),
    /// An affine map of the state's features, `[S, d]`.
    Features { map: Linear, values: Vec<f32> },
}

/// What the last layer means.
#[derive(Clone, Debug)]
enum Head {
    /// A logit for each action.
    Logits,
    /// α and β of a Beta density on [0, 1], evaluated at the actions; its normaliser cancels in the softmax over them.
    Beta {
        /// log x_a.
        log: Vec<f32>,
        /// log(1 - x_a).
        log_complement: Vec<f32>,
    },
}

impl Head {
    /// Probabilities `[rows, A]` from the outputs of the last layer.
    fn probabilities(&self, raw: &[f32], table: &mut [f32], actions: usize) {
        match self {
            Self::Logits => table.copy_from_slice(raw),
            Self::Beta {
                log,
                log_complement,
            } => {
                for (row, raw) in table.chunks_exact_mut(actions).zip(raw.chunks_exact(2)) {
                    // α - 1 and β - 1.
                    let a = softplus(raw[0]) + BETA_MARGIN;
                    let b = softplus(raw[1]) + BETA_MARGIN;
                    for (logit, (x, y)) in row.iter_mut().zip(log.iter().zip(log_complement)) {
                        *logit = a * x + b * y;
                    }
                }
            }
        }
        table.chunks_exact_mut(actions).for_each(softmax);
    }

    /// Gradient of the outputs of the last layer from that of the probabilities: ∂logit = π (∂π - Σ_a π ∂π), and on.
    fn gradient(&self, block: &Block<'_>, actions: usize, of_raw: &mut [f32]) {
        let rows = block
            .probabilities
            .chunks_exact(actions)
            .zip(block.slopes.chunks_exact(actions));
        for (row, (p, g)) in rows.enumerate() {
            let mean: f32 = p.iter().zip(g).map(|(p, g)| p * g).sum();
            let of_logits = p.iter().zip(g).map(|(p, g)| p * (g - mean));
            match self {
                Self::Logits => {
                    let out = &mut of_raw[row * actions..(row + 1) * actions];
                    out.iter_mut().zip(of_logits).for_each(|(out, g)| *out = g);
                }
                Self::Beta {
                    log,
                    log_complement,
                } => {
                    let (mut a, mut b) = (0.0, 0.0);
                    for (g, (x, y)) in of_logits.zip(log.iter().zip(log_complement)) {
                        a += g * x;
                        b += g * y;
                    }
                    // The derivative of softplus.
                    of_raw[2 * row] = a * sigmoid(block.raw[2 * row]);
                    of_raw[2 * row + 1] = b * sigmoid(block.raw[2 * row + 1]);
                }
            }
        }
    }
}

/// π(a|s, x) for all states of a game given a public input x `[E, k]` (arXiv 2602.20141, with the layers of the library MFAX).
///
/// State and input are embedded in W numbers each; two layers of H units with max(0, ·) follow, and a head.
#[derive(Clone, Debug)]
pub struct PolicyNetwork {
    state: StateMap,
    input: Linear,
    first_of_state: Linear,
    first_of_input: Linear,
    second: Linear,
    out: Linear,
    head: Head,
    states: usize,
    actions: usize,
    embedding: usize,
    hidden: usize,
    inputs: usize,
}

/// The record of a pass over T steps of E paths; reused from pass to pass.
#[derive(Clone, Debug, Default)]
pub struct PolicyPass {
    paths: usize,
    time: usize,
    /// Embedded states `[S, W]`, and their part of the first layer `[S, H]`.
    embedded_states: Vec<f32>,
    of_states: Vec<f32>,
    /// Public inputs `[T, E, k]`, embedded `[T, E, W]`, and their part of the first layer `[T, E, H]`.
    inputs: Vec<f32>,
    embedded_inputs: Vec<f32>,
    of_inputs: Vec<f32>,
    /// Activations of the second layer, `[T, E, S, H]`.
    second: Vec<f32>,
    /// Outputs of the last layer, `[T, E, S, outputs]`.
    raw: Vec<f32>,
    /// Sums of the parts of the gradient.
    parts: Vec<Part>,
}

/// One part's gradients, and its room.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Laid out as the parameters; only the layers of the blocks are written.
    flat: Vec<f32>,
    /// ∂ of the states' part of the first layer, `[S, H]`.
    of_states: Vec<f32>,
    room: Room,
}

/// Room of one block.
#[derive(Clone, Debug, Default)]
struct Room {
    first: Vec<f32>,
    out: Vec<f32>,
    of_second: Vec<f32>,
    of_first: Vec<f32>,
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

impl PolicyNetwork {
    /// Adds the parameters of a policy for `spec` over public inputs of length `inputs`, with embeddings of `embedding` and layers of `hidden`
    /// units.
    pub fn new(
        builder: &mut ParameterBuilder,
        spec: &GameSpec,
        inputs: usize,
        embedding: usize,
        hidden: usize,
    ) -> Self {
        let (k, w, h) = (inputs as i64, embedding as i64, hidden as i64);
        let mut affine = |name: &str, inputs: i64, outputs: i64, fan_in: i64, bias: bool| {
            let weight = builder.lecun(&format!("{name}.weight"), &[outputs, inputs], fan_in);
            let bias = bias.then(|| builder.constant(&format!("{name}.bias"), &[outputs], 0.0));
            Linear::over(weight, bias, outputs)
        };
        let features = spec.state_features.as_ref();
        let map = features.map(|features| {
            let dim = features.names.len() as i64;
            affine("policy.state", dim, w, dim, true)
        });
        let input = affine("policy.input", k, w, k, true);
        let first_of_state = affine("policy.first.state", w, h, 2 * w, false);
        let first_of_input = affine("policy.first.input", w, h, 2 * w, true);
        let second = affine("policy.second", h, h, h, true);
        let (head, outputs) = match spec.action_kind {
            ActionKind::Discrete => (Head::Logits, spec.actions() as i64),
            ActionKind::Interval => {
                let clipped = |x: &f64| x.clamp(1e-6, 1.0 - 1e-6);
                let values = || spec.action_values.iter().map(clipped);
                let head = Head::Beta {
                    log: values().map(|x| x.ln() as f32).collect(),
                    log_complement: values().map(|x| (1.0 - x).ln() as f32).collect(),
                };
                (head, 2)
            }
        };
        let weight = builder.lecun("policy.head.weight", &[outputs, h], h);
        let bias = match head {
            Head::Logits => builder.gaussian("policy.head.bias", &[outputs], 0.0, 0.01),
            Head::Beta { .. } => builder.constant("policy.head.bias", &[outputs], 0.0),
        };
        let state = match (map, features) {
            (Some(map), Some(features)) => StateMap::Features {
                map,
                values: features.values.clone(),
            },
            _ => {
                let deviation = 1.0 / (embedding as f64).sqrt();
                let shape = [spec.states as i64, w];
                StateMap::Table(builder.gaussian("policy.state.table", &shape, 0.0, deviation))
            }
        };
        Self {
            state,
            input,
            first_of_state,
            first_of_input,
            second,
            out: Linear::over(weight, Some(bias), outputs),
            head,
            states: spec.states,
            actions: spec.actions(),
            embedding,
            hidden,
            inputs,
        }
    }

    /// Outputs of the last layer.
    fn outputs(&self) -> usize {
        match self.head {
            Head::Logits => self.actions,
            Head::Beta { .. } => 2,
        }
    }

    /// Starts a pass of T = `horizon` steps of E = `paths` paths with the parameters as they are.
    pub fn start(
        &self,
        own: ParameterValues<'_>,
        pass: &mut PolicyPass,
        paths: usize,
        horizon: usize,
    ) {
        pass.paths = paths;
        pass.time = 0;
        let (states, rows) = (self.states, horizon * paths);
        pass.of_states.resize(states * self.hidden, 0.0);
        match &self.state {
            StateMap::Table(table) => {
                pass.embedded_states.clear();
                pass.embedded_states.extend_from_slice(own.get(*table));
            }
            StateMap::Features { map, values } => {
                pass.embedded_states.resize(states * self.embedding, 0.0);
                map.values(own, values, &mut pass.embedded_states, states);
            }
        }
        self.first_of_state
            .values(own, &pass.embedded_states, &mut pass.of_states, states);
        pass.inputs.resize(rows * self.inputs, 0.0);
        pass.embedded_inputs.resize(rows * self.embedding, 0.0);
        pass.of_inputs.resize(rows * self.hidden, 0.0);
        pass.second.resize(rows * states * self.hidden, 0.0);
        pass.raw.resize(rows * states * self.outputs(), 0.0);
    }

    /// One step: public inputs `[E, k]` of the pass's time to probabilities `[E, S, A]`.
    pub fn step(
        &self,
        own: ParameterValues<'_>,
        pass: &mut PolicyPass,
        inputs: &[f32],
        probabilities: &mut [f32],
    ) {
        let (paths, states, hidden) = (pass.paths, self.states, self.hidden);
        let start = pass.time * paths;
        pass.inputs[start * self.inputs..][..inputs.len()].copy_from_slice(inputs);
        let embedded =
            &mut pass.embedded_inputs[start * self.embedding..][..paths * self.embedding];
        self.input.values(own, inputs, embedded, paths);
        let of_inputs = &mut pass.of_inputs[start * hidden..][..paths * hidden];
        self.first_of_input.values(own, embedded, of_inputs, paths);
        let (of_states, of_inputs) = (&pass.of_states, &*of_inputs);

        let (rows, outputs, actions) = (start * states, self.outputs(), self.actions);
        probabilities
            .par_chunks_mut(states * actions)
            .zip(pass.second[rows * hidden..].par_chunks_mut(states * hidden))
            .zip(pass.raw[rows * outputs..].par_chunks_mut(states * outputs))
            .zip(of_inputs.par_chunks(hidden))
            .for_each(|(((table, second), raw), of_path)| {
                table
                    .par_chunks_mut(BLOCK * actions)
                    .zip(second.par_chunks_mut(BLOCK * hidden))
                    .zip(raw.par_chunks_mut(BLOCK * outputs))
                    .zip(of_states.par_chunks(BLOCK * hidden))
                    .for_each_init(Vec::new, |first, (((table, second), raw), of_block)| {
                        let rows = of_block.len() / hidden;
                        first_layer(of_block, of_path, first);
                        self.second.values(own, first, second, rows);
                        second.iter_mut().for_each(|value| *value = value.max(0.0));
                        self.out.values(own, second, raw, rows);
                        self.head.probabilities(raw, table, actions);
                    });
            });
        pass.time += 1;
    }

    /// Adds the parameter gradients of a whole pass to `gradient`, for gradients `slopes` of its `probabilities`, both `[T, E, S, A]`; gives the
    /// gradient with respect to the public inputs, `[T, E, k]`.
    pub fn add_gradient(
        &self,
        own: ParameterValues<'_>,
        pass: &mut PolicyPass,
        probabilities: &[f32],
        slopes: &[f32],
        gradient: &mut [f32],
    ) -> Vec<f32> {
        let (states, hidden, actions) = (self.states, self.hidden, self.actions);
        let rows = pass.time * pass.paths;
        let mut of_inputs = vec![0.0; rows * hidden];
        let mut parts = std::mem::take(&mut pass.parts);
        parts.resize_with(PARTS.min(rows), Part::default);
        let count = parts.len();
        let (second, raw) = (&pass.second, &pass.raw);
        let (from_states, from_inputs) = (&pass.of_states, &pass.of_inputs);
        // Each part takes some of the (time, path) rows.
        let mut shares: Vec<(Range<usize>, &mut [f32])> = Vec::with_capacity(count);
        let mut rest = &mut of_inputs[..];
        for part in 0..count {
            let range = part * rows / count..(part + 1) * rows / count;
            let (own, others) = rest.split_at_mut(range.len() * hidden);
            shares.push((range, own));
            rest = others;
        }
        parts
            .par_iter_mut()
            .zip(shares)
            .for_each(|(part, (range, of_inputs))| {
                part.flat.clear();
                part.flat.resize(own.flat.len(), 0.0);
                part.of_states.clear();
                part.of_states.resize(states * hidden, 0.0);
                for (row, of_input) in range.zip(of_inputs.chunks_exact_mut(hidden)) {
                    for block in blocks(states) {
                        let at = |width: usize| {
                            (row * states + block.start) * width..(row * states + block.end) * width
                        };
                        let block = Block {
                            of_block: &from_states[block.start * hidden..block.end * hidden],
                            of_path: &from_inputs[row * hidden..][..hidden],
                            second: &second[at(hidden)],
                            raw: &raw[at(self.outputs())],
                            probabilities: &probabilities[at(actions)],
                            slopes: &slopes[at(actions)],
                            states: block,
                        };
                        self.block_gradient(own, &block, part, of_input);
                    }
                }
            });
        let mut of_states = vec![0.0; states * hidden];
        for part in &parts {
            let add = |sum: &mut [f32], own: &[f32]| {
                sum.iter_mut().zip(own).for_each(|(sum, g)| *sum += g);
            };
            add(gradient, &part.flat);
            add(&mut of_states, &part.of_states);
        }
        pass.parts = parts;
        self.add_input_gradient(own, pass, &of_states, &of_inputs, gradient)
    }

    /// Logits' gradient of one block, then back through both layers.
    fn block_gradient(
        &self,
        own: ParameterValues<'_>,
        block: &Block<'_>,
        part: &mut Part,
        of_input: &mut [f32],
    ) {
        let (rows, outputs) = (block.states.len(), self.outputs());
        let Part {
            flat,
            of_states,
            room,
        } = part;
        room.out.resize(rows * outputs, 0.0);
        self.head.gradient(block, self.actions, &mut room.out);
        let layouts: &[ParameterLayout] = own.layouts;
        self.out
            .add_parameter_gradient(layouts, block.second, &room.out, rows, flat);
        room.of_second.resize(rows * self.hidden, 0.0);
        self.out
            .input_gradient(own, &room.out, rows, &mut room.of_second);
        mask(&mut room.of_second, block.second);
        first_layer(block.of_block, block.of_path, &mut room.first);
        self.second
            .add_parameter_gradient(layouts, &room.first, &room.of_second, rows, flat);
        room.of_first.resize(rows * self.hidden, 0.0);
        self.second
            .input_gradient(own, &room.of_second, rows, &mut room.of_first);
        mask(&mut room.of_first, &room.first);
        let sums = &mut of_states[block.states.start * self.hidden..];
        for (g, sum) in room
            .of_first
            .chunks_exact(self.hidden)
            .zip(sums.chunks_exact_mut(self.hidden))
        {
            for ((g, sum), of_input) in g.iter().zip(sum).zip(&mut *of_input) {
                *sum += g;
                *of_input += g;
            }
        }
    }

    /// From the first layer back to the embeddings and the public inputs.
    fn add_input_gradient(
        &self,
        own: ParameterValues<'_>,
        pass: &PolicyPass,
        of_states: &[f32],
        of_inputs: &[f32],
        gradient: &mut [f32],
    ) -> Vec<f32> {
        let layouts: &[ParameterLayout] = own.layouts;
        let (states, rows) = (self.states, pass.time * pass.paths);
        self.first_of_state.add_parameter_gradient(
            layouts,
            &pass.embedded_states,
            of_states,
            states,
            gradient,
        );
        let mut of_embedded = vec![0.0; states * self.embedding];
        self.first_of_state
            .input_gradient(own, of_states, states, &mut of_embedded);
        match &self.state {
            StateMap::Table(table) => {
                let table = &mut gradient[layouts[*table].range()];
                table
                    .iter_mut()
                    .zip(&of_embedded)
                    .for_each(|(sum, g)| *sum += g);
            }
            StateMap::Features { map, values } => {
                map.add_parameter_gradient(layouts, values, &of_embedded, states, gradient);
            }
        }
        let embedded = &pass.embedded_inputs;
        self.first_of_input
            .add_parameter_gradient(layouts, embedded, of_inputs, rows, gradient);
        let mut of_embedded = vec![0.0; rows * self.embedding];
        self.first_of_input
            .input_gradient(own, of_inputs, rows, &mut of_embedded);
        self.input
            .add_parameter_gradient(layouts, &pass.inputs, &of_embedded, rows, gradient);
        let mut of_public = vec![0.0; rows * self.inputs];
        self.input
            .input_gradient(own, &of_embedded, rows, &mut of_public);
        of_public
    }
}

/// What is known of one block of states at one (time, path).
struct Block<'a> {
    states: Range<usize>,
    of_block: &'a [f32],
    of_path: &'a [f32],
    second: &'a [f32],
    raw: &'a [f32],
    probabilities: &'a [f32],
    slopes: &'a [f32],
}

/// 0..S in blocks.
fn blocks(states: usize) -> impl Iterator<Item = Range<usize>> {
    (0..states)
        .step_by(BLOCK)
        .map(move |start| start..(start + BLOCK).min(states))
}

/// max(0, state part + public part) of every state of a block.
fn first_layer(of_block: &[f32], of_path: &[f32], first: &mut Vec<f32>) {
    first.resize(of_block.len(), 0.0);
    let rows = of_block.chunks_exact(of_path.len());
    for (row, out) in rows.zip(first.chunks_exact_mut(of_path.len())) {
        for ((out, a), b) in out.iter_mut().zip(row).zip(of_path) {
            *out = (a + b).max(0.0);
        }
    }
}

/// A unit that is 0 passes no gradient on.
fn mask(gradient: &mut [f32], active: &[f32]) {
    for (g, value) in gradient.iter_mut().zip(active) {
        *g = if *value > 0.0 { *g } else { 0.0 };
    }
}

fn softmax(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
        sum += *value;
    }
    let scale = 1.0 / sum;
    row.iter_mut().for_each(|value| *value *= scale);
}

#[cfg(test)]
mod tests;
