//! How far one application of the exact Bellman operator brings two return laws together.

use pushforward_divergences::{
    Divergence, DivergenceConfig, KernelConfig, LiftConfig, SearchConfig,
};
use pushforward_envs::StreamRng;
use rand::Rng;
use rayon::prelude::*;
use statrs::distribution::{ContinuousCDF, Normal};

use super::laws::{Law, gaussian, half_circle};
use super::{Claim, Report, Request, Table};
use crate::failure::Failure;
use crate::plots::{self, Estimate, RowSeries, Rows};

/// The registry line.
pub const CLAIM: Claim = Claim {
    name: "contraction",
    summary: "measured contraction factor of the exact Bellman operator, with the theorem's",
    time: "1 minute",
    measure,
};

const STATES: usize = 3;
const ACTIONS: usize = 2;
/// Exponent α of the energy kernel -|u|^α.
const ALPHA: f64 = 1.5;
/// A search finds nearly the largest value, before as after: a factor may exceed its bound by this share.
const SEARCH_SLACK: f64 = 3e-3;

type Matrix = [[f64; 2]; 2];

/// A base divergence with a lift.
struct Method {
    name: &'static str,
    lift: &'static str,
    divergence: Box<dyn Divergence>,
    /// Fixed directions, or starts of the search.
    directions: Vec<f64>,
    /// The distance (the root of the value) contracts by the ρ-th power of the discount's norm.
    rho: f64,
}

impl Method {
    fn distance(&self, x: &Law, y: &Law) -> Result<f64, Failure> {
        let found = x.compare(y, self.divergence.as_ref(), &self.directions)?;
        Ok(found.value.max(0.0).powf(1.0 / self.divergence.exponent()))
    }

    /// What the theorem says of the factor: uniform slicing for scalar discounts only, max slicing for all.
    fn bound(&self, discount: &Discount) -> Option<f64> {
        (discount.scalar || self.lift == "max").then(|| discount.norm.powf(self.rho))
    }
}

fn methods(directions: usize) -> Result<Vec<Method>, Failure> {
    let wasserstein = |p| DivergenceConfig::Wasserstein {
        p,
        lift: LiftConfig::default(),
    };
    let energy = DivergenceConfig::Mmd {
        kernel: KernelConfig::Energy { alpha: ALPHA },
        statistic: None,
        lift: LiftConfig::default(),
    };
    let max = || LiftConfig::Max {
        search: SearchConfig::Ascent {
            starts: 24,
            steps: 20,
            step_size: 0.1,
        },
    };
    let mut methods = Vec::new();
    for (name, config, rho, exact) in [
        ("wasserstein 1", wasserstein(1.0), 1.0, false),
        ("wasserstein 2", wasserstein(2.0), 1.0, false),
        ("cramer", DivergenceConfig::default(), 0.5, true),
        ("mmd energy 1.5", energy, ALPHA / 2.0, true),
    ] {
        let mut push = |lift, config: DivergenceConfig, directions| {
            let divergence = config.build(2).map_err(Failure::input)?;
            methods.push(Method {
                name,
                lift,
                divergence,
                directions,
                rho,
            });
            Ok::<(), Failure>(())
        };
        push("uniform", config.clone(), half_circle(directions))?;
        if exact {
            let config = config.clone().with_lift(LiftConfig::Exact);
            push("exact", config, Vec::new())?;
        }
        push("max", config.with_lift(max()), half_circle(24))?;
    }
    Ok(methods)
}

/// A discount matrix Γ.
struct Discount {
    name: &'static str,
    matrix: Matrix,
    /// Operator norm ‖Γ‖.
    norm: f64,
    scalar: bool,
}

fn rotation() -> Matrix {
    let (sin, cos) = std::f64::consts::FRAC_PI_6.sin_cos();
    [[cos, -sin], [sin, cos]]
}

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |i: usize, j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j];
    [[entry(0, 0), entry(0, 1)], [entry(1, 0), entry(1, 1)]]
}

fn diagonal(first: f64, second: f64) -> Matrix {
    [[first, 0.0], [0.0, second]]
}

fn discounts() -> [Discount; 3] {
    let discount = |name, matrix, norm, scalar| Discount {
        name,
        matrix,
        norm,
        scalar,
    };
    [
        discount("scalar .9", diagonal(0.9, 0.9), 0.9, true),
        discount("diagonal .95, .05", diagonal(0.95, 0.05), 0.95, false),
        // A rotation by 30° of diag(.9, .4): no eigenvectors at right angles.
        discount(
            "dense, norm .9",
            product(&rotation(), &diagonal(0.9, 0.4)),
            0.9,
            false,
        ),
    ]
}

fn push_through(matrix: &Matrix, shift: &[f64; 2], law: &Law) -> Vec<f64> {
    let rows = law.points.chunks_exact(2);
    rows.flat_map(|z| [0, 1].map(|c| shift[c] + matrix[c][0] * z[0] + matrix[c][1] * z[1]))
        .collect()
}

/// A process in which each (s, a) has two successor states and the next action is drawn by a fixed policy.
struct Process {
    /// For each (s, a) and outcome: probability, successor state, reward.
    outcomes: Vec<[(f64, usize, [f64; 2]); 2]>,
    /// Probability of action 0 in each state.
    policy: [f64; STATES],
}

impl Process {
    fn draw(rng: &mut StreamRng) -> Self {
        let outcomes = (0..STATES * ACTIONS).map(|_| {
            let p = rng.random::<f64>();
            [p, 1.0 - p].map(|p| {
                let reward = gaussian(2, rng);
                (p, rng.random_range(0..STATES), [reward[0], reward[1]])
            })
        });
        Self {
            outcomes: outcomes.collect(),
            policy: [(); STATES].map(|()| rng.random()),
        }
    }

    /// The laws of R + Γ Z(S', A'), all mixtures written out; laws are indexed by (s, a).
    fn bellman(&self, laws: &[Law], discount: &Matrix) -> Vec<Law> {
        let outcomes = self.outcomes.iter().map(|outcomes| {
            let mut law = Law {
                points: Vec::new(),
                weights: Vec::new(),
            };
            for (p, state, reward) in outcomes {
                for (action, share) in [self.policy[*state], 1.0 - self.policy[*state]]
                    .into_iter()
                    .enumerate()
                {
                    let next = &laws[state * ACTIONS + action];
                    law.points.extend(push_through(discount, reward, next));
                    law.weights
                        .extend(next.weights.iter().map(|weight| p * share * weight));
                }
            }
            law
        });
        outcomes.collect()
    }
}

/// Two families of laws over (s, a): unrelated clouds, one cloud and its translation, or single points.
fn draw_pair(kind: usize, rng: &mut StreamRng) -> [Vec<Law>; 2] {
    let atoms = if kind == 2 { 1 } else { 4 };
    let mut draw = || -> Vec<Law> {
        (0..STATES * ACTIONS)
            .map(|_| Law::equal(gaussian(2 * atoms, rng), 2))
            .collect()
    };
    let first = draw();
    let mut second = draw();
    if kind == 1 {
        let shift = [second[0].points[0], second[0].points[1]];
        second = first
            .iter()
            .map(|law| Law::equal(push_through(&diagonal(1.0, 1.0), &shift, law), 2))
            .collect();
    }
    [first, second]
}

/// Largest distance over (s, a).
fn supremum(method: &Method, first: &[Law], second: &[Law]) -> Result<f64, Failure> {
    first.iter().zip(second).try_fold(0.0, |largest, (x, y)| {
        Ok(f64::max(largest, method.distance(x, y)?))
    })
}

/// The Thue-Morse sets {0,3,5,6} and {1,2,4,7}, whose first three moments agree, in x, times 400 quantiles of N(0, 60²) in y; turned by `turn`.
fn thue_morse(turn: &Matrix) -> Result<[Law; 2], Failure> {
    let normal = Normal::new(0.0, 60.0).map_err(Failure::run)?;
    let law = |support: [f64; 4]| {
        let points = support.iter().flat_map(|&x| {
            let normal = &normal;
            (0..400).flat_map(move |k| [x, normal.inverse_cdf((f64::from(k) + 0.5) / 400.0)])
        });
        let law = Law::equal(points.collect(), 2);
        Law::equal(push_through(turn, &[0.0; 2], &law), 2)
    };
    Ok([law([0.0, 3.0, 5.0, 6.0]), law([1.0, 2.0, 4.0, 7.0])])
}

fn measure(request: &Request) -> Result<Report, Failure> {
    let mut table = Table::new(&[
        "laws",
        "discount",
        "divergence",
        "lift",
        "factor",
        "bound",
        "verdict",
    ]);
    let random = methods(180)?;
    let names: Vec<String> = random
        .iter()
        .map(|method| format!("{}, {}", method.name, method.lift))
        .collect();
    let mut columns = Vec::new();
    let each = if request.quick { 1 } else { 4 };
    let pairs: Vec<(u64, usize)> = request
        .seeds
        .iter()
        .flat_map(|seed| (0..3 * each).map(|index| (*seed, index)))
        .collect();
    for discount in &discounts() {
        let mut largest = vec![0.0_f64; random.len()];
        let factors = pairs
            .par_iter()
            .map(|(seed, index)| {
                let mut rng = StreamRng::new(*seed, "contraction", *index as u64);
                let process = Process::draw(&mut rng);
                let [x, y] = draw_pair(index % 3, &mut rng);
                let next = |laws| process.bellman(laws, &discount.matrix);
                let (after_x, after_y) = (next(&x), next(&y));
                random
                    .iter()
                    .map(|method| {
                        Ok(supremum(method, &after_x, &after_y)? / supremum(method, &x, &y)?)
                    })
                    .collect::<Result<Vec<f64>, Failure>>()
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        for row in factors {
            for (largest, factor) in largest.iter_mut().zip(row) {
                *largest = largest.max(factor);
            }
        }
        let rows: Vec<_> = random.iter().zip(largest.into_iter().map(Some)).collect();
        columns.push((discount.name, record(&mut table, "random", discount, &rows)));
    }

    let identity = diagonal(1.0, 1.0);
    let matrix = diagonal(0.95, 0.05);
    let turn = rotation();
    let back = [[turn[0][0], turn[1][0]], [turn[0][1], turn[1][1]]];
    let many = methods(4000)?;
    for (name, matrix, turn) in [
        ("Thue-Morse, diagonal", matrix, identity),
        (
            "Thue-Morse, dense",
            product(&product(&turn, &matrix), &back),
            turn,
        ),
    ] {
        let discount = Discount {
            name: "norm .95",
            matrix,
            norm: 0.95,
            scalar: false,
        };
        let [x, y] = thue_morse(&turn)?;
        let next = |law| Law::equal(push_through(&discount.matrix, &[0.0; 2], law), 2);
        let (after_x, after_y) = (next(&x), next(&y));
        let rows = many
            .par_iter()
            .map(|method| {
                // All pairs of 1600 points along every direction: only the closed form is affordable for this kernel.
                let pairwise = method.name.starts_with("mmd") && method.lift != "exact";
                let quick = request.quick && !method.name.starts_with("wasserstein");
                if pairwise || quick {
                    return Ok((method, None));
                }
                let factor = method.distance(&after_x, &after_y)? / method.distance(&x, &y)?;
                Ok((method, Some(factor)))
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        columns.push((name, record(&mut table, name, &discount, &rows)));
    }
    let plot = Rows {
        title: "Distance after one exact Bellman step over distance before",
        x_label: "factor (tick: the theorem's bound)",
        logarithmic: true,
        reference: Some((1.0, "no change")),
        names: &names,
        series: columns
            .into_iter()
            .map(|(name, estimates)| RowSeries { name, estimates })
            .collect(),
    };
    plots::write(&plot, &request.out, "figure")?;
    Ok(Report {
        tables: vec![("table", table)],
        notes: vec![format!(
            "`random`: {} pairs of families of laws over 3 states and 2 actions under random processes (unrelated clouds, translated clouds, single points); \
             the largest factor, a supremum over (s, a) after over before. `Thue-Morse`: two laws of 1600 points with equal low moments, rewards 0. \
             Distances are roots of the divergences: the bound is ‖Γ‖ for Wasserstein, ‖Γ‖^½ for Cramér and ‖Γ‖^(α/2) for the energy kernel with α = 1.5; \
             uniform and exact slicing have one for scalar discounts only. Everything is a finite mixture, nothing is sampled.",
            pairs.len()
        )],
    })
}

/// Adds the rows of one discount to the table and gives their estimates.
fn record(
    table: &mut Table,
    laws: &str,
    discount: &Discount,
    rows: &[(&Method, Option<f64>)],
) -> Vec<Option<Estimate>> {
    rows.iter()
        .map(|(method, factor)| {
            let factor = (*factor)?;
            let bound = method.bound(discount);
            let slack = if method.lift == "max" {
                SEARCH_SLACK
            } else {
                1e-9
            };
            let verdict = match bound {
                Some(bound) if factor <= bound * (1.0 + slack) => "within the bound",
                Some(_) => "above the bound",
                None if factor > 1.0 => "no bound; expands",
                None => "no bound",
            };
            table.push(vec![
                laws.to_owned(),
                discount.name.to_owned(),
                method.name.to_owned(),
                method.lift.to_owned(),
                format!("{factor:.4}"),
                bound.map_or(String::new(), |bound| format!("{bound:.4}")),
                verdict.to_owned(),
            ]);
            Some(Estimate {
                value: factor,
                interval: None,
                bound,
            })
        })
        .collect()
}
