//! Inner loops over plain slices, compiled for AVX2 and for the baseline and chosen at run time, with the same results bit for bit.
#![allow(unsafe_code)] // Calling a function compiled for AVX2 is unsafe; the check for AVX2 is next to each call.

use super::real::Real;

/// Defines a function twice, once with AVX2, and a front that calls the one that the processor can run.
macro_rules! kernels {
    ($($(#[$meta:meta])* fn $name:ident<R: Real>($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$meta])*
            pub(crate) fn $name<R: Real>($($argument: $type),*) $(-> $result)? {
                #[inline(always)]
                fn portable<R: Real>($($argument: $type),*) $(-> $result)? $body

                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "avx2")]
                    fn avx2<R: Real>($($argument: $type),*) $(-> $result)? {
                        portable($($argument),*)
                    }
                    if std::arch::is_x86_feature_detected!("avx2") {
                        // SAFETY: the processor has AVX2.
                        return unsafe { avx2($($argument),*) };
                    }
                }
                portable($($argument),*)
            }
        )*
    };
}

/// Partial results that are kept apart, so that they fill vector registers and rounding errors stay small.
const LANES: usize = 8;

/// The same for the short rows of one state's actions.
const ROW_LANES: usize = 4;

/// Lotteries that are worked on together.
const BLOCK: usize = 64;

/// Calls a function on rows of A actions with A known to the compiler where it is a usual number, so that its loops unroll.
macro_rules! by_actions {
    ($actions:expr, $rows:ident($($argument:expr),* $(,)?)) => {
        match $actions {
            7 => $rows::<R, 7>($($argument),*),
            11 => $rows::<R, 11>($($argument),*),
            20 => $rows::<R, 20>($($argument),*),
            // 0: any number.
            _ => $rows::<R, 0>($($argument),*),
        }
    };
}

/// The length of a row: A if the compiler knows it, else as given.
#[inline(always)]
fn row_length<const A: usize>(actions: usize) -> usize {
    if A == 0 { actions } else { A }
}

#[inline(always)]
fn joint_rows<R: Real, const A: usize>(mu: &[R], policy: &[R], joint: &mut [R], actions: usize) {
    let actions = row_length::<A>(actions);
    let rows = joint
        .chunks_exact_mut(actions)
        .zip(policy.chunks_exact(actions));
    for (mass, (joint, policy)) in mu.iter().zip(rows) {
        for (joint, p) in joint.iter_mut().zip(policy) {
            *joint = *mass * *p;
        }
    }
}

#[inline(always)]
fn product_rows<R: Real, const A: usize>(
    ([x, y], [p, q]): ([&[f64]; 2], [f64; 2]),
    columns: &[R],
    [low, high]: [R; 2],
    products: &mut [R],
    actions: usize,
) {
    let actions = row_length::<A>(actions);
    let columns = &columns[..actions];
    let rows = x.iter().zip(y).map(|(x, y)| R::from_f64(p * x + q * y));
    for (row, products) in rows.zip(products.chunks_exact_mut(actions)) {
        for (product, column) in products.iter_mut().zip(columns) {
            let value = row * *column;
            let value = if value > low { value } else { low };
            *product = if value < high { value } else { high };
        }
    }
}

#[inline(always)]
fn average_rows<R: Real, const A: usize>(
    action_values: &[R],
    policy: &[R],
    values: &mut [R],
    actions: usize,
) {
    let actions = row_length::<A>(actions);
    let rows = action_values
        .chunks_exact(actions)
        .zip(policy.chunks_exact(actions));
    for (value, (action_values, policy)) in values.iter_mut().zip(rows) {
        let mut sums = [R::ZERO; ROW_LANES];
        for a in 0..actions {
            sums[a % ROW_LANES] += action_values[a] * policy[a];
        }
        *value = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    }
}

#[inline(always)]
fn maximum_rows<R: Real, const A: usize>(action_values: &[R], values: &mut [R], actions: usize) {
    let actions = row_length::<A>(actions);
    let larger = |a: R, b: R| if b > a { b } else { a };
    for (value, row) in values.iter_mut().zip(action_values.chunks_exact(actions)) {
        let mut highest = [row[0]; ROW_LANES];
        for a in 1..actions {
            highest[a % ROW_LANES] = larger(highest[a % ROW_LANES], row[a]);
        }
        *value = larger(
            larger(highest[0], highest[2]),
            larger(highest[1], highest[3]),
        );
    }
}

/// How the leading bits of a value lead to its stretch of a grid: bits(value + shift) >> dropped_bits, less first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leading<R> {
    pub shift: R,
    pub first: u32,
    pub dropped_bits: u32,
}

/// What finds the cell of a value on a grid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GridTables<'a, R> {
    pub leading: Leading<R>,
    /// The first cell of each stretch, and where the next cell starts.
    pub stretches: &'a [(u32, R)],
    /// The start of each cell, and one over its width.
    pub cells: &'a [(R, R)],
}

kernels! {
    /// Σ_i a_i b_i in double precision; the order of the additions is fixed.
    fn dot<R: Real>(a: &[R], b: &[R]) -> f64 {
        let mut sums = [0.0; LANES];
        let (a_rows, b_rows) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let tails = a_rows.remainder().iter().zip(b_rows.remainder());
        let tail: f64 = tails.map(|(x, y)| x.to_f64() * y.to_f64()).sum();
        for (x, y) in a_rows.zip(b_rows) {
            for lane in 0..LANES {
                sums[lane] += x[lane].to_f64() * y[lane].to_f64();
            }
        }
        sums.iter().sum::<f64>() + tail
    }

    /// Σ_i a_i b_i with weights in double precision.
    fn mean<R: Real>(a: &[R], b: &[f64]) -> f64 {
        let mut sums = [0.0; LANES];
        let (a_rows, b_rows) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let tails = a_rows.remainder().iter().zip(b_rows.remainder());
        let tail: f64 = tails.map(|(x, y)| x.to_f64() * y).sum();
        for (x, y) in a_rows.zip(b_rows) {
            for lane in 0..LANES {
                sums[lane] += x[lane].to_f64() * y[lane];
            }
        }
        sums.iter().sum::<f64>() + tail
    }

    /// Σ_i a_i in double precision; the order of the additions is fixed.
    fn sum<R: Real>(values: &[R]) -> f64 {
        let mut sums = [0.0; LANES];
        let rows = values.chunks_exact(LANES);
        let tail: f64 = rows.remainder().iter().map(|x| x.to_f64()).sum();
        for x in rows {
            for lane in 0..LANES {
                sums[lane] += x[lane].to_f64();
            }
        }
        sums.iter().sum::<f64>() + tail
    }

    /// joint(s, a) = μ(s) π(a|s).
    fn joint_law<R: Real>(mu: &[R], policy: &[R], joint: &mut [R]) {
        let actions = policy.len() / mu.len();
        by_actions!(actions, joint_rows(mu, policy, joint, actions));
    }

    /// products(s, a) = (p x(s) + q y(s)) column(a), kept between two ends, which also replace what is not a number.
    fn clamped_products<R: Real>(
        rows: ([&[f64]; 2], [f64; 2]),
        columns: &[R],
        ends: [R; 2],
        products: &mut [R],
    ) {
        let actions = columns.len();
        by_actions!(actions, product_rows(rows, columns, ends, products, actions));
    }

    /// held(k) = Σ joint(pair) over the pairs that lead to k, which stand in `pairs[starts[k]..starts[k + 1]]`.
    fn collect<R: Real>(joint: &[R], starts: &[u32], pairs: &[u32], held: &mut [R]) {
        let at = |pair: &u32| joint.get(*pair as usize).copied().unwrap_or(R::ZERO);
        for (held, range) in held.iter_mut().zip(starts.windows(2)) {
            let pairs = pairs.get(range[0] as usize..range[1] as usize).unwrap_or(&[]);
            let mut halves = pairs.chunks_exact(2);
            // Two chains of additions at a time.
            let mut sums = [R::ZERO; 2];
            for two in halves.by_ref() {
                sums[0] += at(&two[0]);
                sums[1] += at(&two[1]);
            }
            for pair in halves.remainder() {
                sums[0] += at(pair);
            }
            *held = sums[0] + sums[1];
        }
    }

    /// held(target) += joint(pair); what leads nowhere is dropped.
    fn scatter<R: Real>(joint: &[R], targets: &[u32], held: &mut [R]) {
        for (mass, target) in joint.iter().zip(targets) {
            if let Some(held) = held.get_mut(*target as usize) {
                *held += *mass;
            }
        }
    }

    /// held(target) += (1 - weight) joint(pair), held(target + stride) += weight joint(pair); what leads nowhere is dropped.
    ///
    /// `parts` is room for both parts of every target, side by side so that one store writes them.
    fn scatter_lotteries<R: Real>(
        joint: &[R],
        targets: &[u32],
        weights: &[R],
        stride: usize,
        parts: &mut [[R; 2]],
        held: &mut [R],
    ) {
        parts.fill([R::ZERO; 2]);
        for ((mass, target), weight) in joint.iter().zip(targets).zip(weights) {
            if let Some(parts) = parts.get_mut(*target as usize) {
                let second = *mass * *weight;
                parts[0] += *mass - second;
                parts[1] += second;
            }
        }
        for (held, parts) in held.iter_mut().zip(&*parts) {
            *held = parts[0];
        }
        for (held, parts) in held.iter_mut().skip(stride).zip(&*parts) {
            *held += parts[1];
        }
    }

    /// to(i) += from(i) weight(i).
    fn add_products<R: Real>(from: &[R], weights: &[R], to: &mut [R]) {
        for ((to, from), weight) in to.iter_mut().zip(from).zip(weights) {
            *to += *from * *weight;
        }
    }

    /// Q = r + γ v(target).
    fn gather<R: Real>(
        rewards: &[R],
        discount: R,
        targets: &[u32],
        values: &[R],
        action_values: &mut [R],
    ) {
        let missing = R::from_f64(f64::NAN);
        let entries = action_values.iter_mut().zip(rewards);
        for ((action_value, reward), target) in entries.zip(targets) {
            let value = values.get(*target as usize).copied().unwrap_or(missing);
            *action_value = *reward + discount * value;
        }
    }

    /// slopes(k) = (v(k), v(k + stride) - v(k)), side by side so that one load reads them; NaN where there is no second.
    fn slopes<R: Real>(values: &[R], stride: usize, slopes: &mut [[R; 2]]) {
        slopes.fill([R::from_f64(f64::NAN); 2]);
        let seconds = values.iter().skip(stride);
        for (slope, (first, second)) in slopes.iter_mut().zip(values.iter().zip(seconds)) {
            *slope = [*first, *second - *first];
        }
    }

    /// Q = r + γ (v(target) + weight (v(target + stride) - v(target))).
    fn gather_lotteries<R: Real>(
        rewards: &[R],
        discount: R,
        targets: &[u32],
        weights: &[R],
        slopes: &[[R; 2]],
        action_values: &mut [R],
    ) {
        let missing = [R::from_f64(f64::NAN); 2];
        let entries = action_values.iter_mut().zip(rewards);
        for (((action_value, reward), target), weight) in entries.zip(targets).zip(weights) {
            let [value, slope] = slopes.get(*target as usize).copied().unwrap_or(missing);
            *action_value = *reward + discount * (value + *weight * slope);
        }
    }

    /// Lotteries on a grid: `weights` holds values inside the grid and gets the weight of the upper point; `targets` gets `bases` plus the
    /// value's cell times `stride`.
    fn lotteries<R: Real>(
        tables: GridTables<'_, R>,
        stride: u32,
        bases: &[u32],
        targets: &mut [u32],
        weights: &mut [R],
    ) {
        let GridTables {
            leading,
            stretches,
            cells,
        } = tables;
        let mut indices = [0_u32; BLOCK];
        let mut places = [(R::ZERO, R::ZERO); BLOCK];
        let blocks = targets.chunks_mut(BLOCK).zip(weights.chunks_mut(BLOCK));
        for ((targets, weights), bases) in blocks.zip(bases.chunks(BLOCK)) {
            for (index, value) in indices.iter_mut().zip(&*weights) {
                let bits = (*value + leading.shift).to_f32().to_bits();
                *index = (bits >> leading.dropped_bits).wrapping_sub(leading.first);
            }
            let items = indices.iter_mut().zip(&*weights);
            for ((index, value), place) in items.zip(&mut places) {
                let (cell, next) = stretches[*index as usize];
                let cell = cell + u32::from(*value >= next);
                *index = cell;
                *place = cells[cell as usize];
            }
            for ((target, cell), base) in targets.iter_mut().zip(&indices).zip(bases) {
                *target = *cell * stride + *base;
            }
            for (value, (start, inverse_width)) in weights.iter_mut().zip(&places) {
                let weight = (*value - *start) * *inverse_width;
                *value = if weight < R::ONE { weight } else { R::ONE };
            }
        }
    }

    /// V(s) = Σ_a π(a|s) Q(s, a).
    fn average<R: Real>(action_values: &[R], policy: &[R], values: &mut [R]) {
        let actions = action_values.len() / values.len();
        by_actions!(actions, average_rows(action_values, policy, values, actions));
    }

    /// B(s) = max_a Q(s, a).
    fn maximum<R: Real>(action_values: &[R], values: &mut [R]) {
        let actions = action_values.len() / values.len();
        by_actions!(actions, maximum_rows(action_values, values, actions));
    }
}
