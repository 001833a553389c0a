use proptest::prelude::*;
use rand::Rng as _;

use super::*;

fn equal(points: &[f32]) -> Cloud<'_> {
    Cloud {
        points,
        weights: None,
    }
}

fn law_figures(reference: &[f32], dim: usize, clouds: &[Cloud<'_>]) -> Vec<Figures> {
    Reference::new(reference, dim).figures(clouds)
}

/// `n` Gaussian points in R^d.
fn gaussian(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut rng = StreamRng::new(seed, "test", 0);
    (0..n * dim)
        .map(|_| rng.sample::<f32, _>(StandardNormal))
        .collect()
}

fn project(points: &[f32], dim: usize, direction: &[f32]) -> Vec<f64> {
    let along = |point: &[f32]| {
        point
            .iter()
            .zip(direction)
            .map(|(x, t)| f64::from(*x) * f64::from(*t))
            .sum()
    };
    points.chunks_exact(dim).map(along).collect()
}

/// W_1, W_2² and ∫ (F - G)² by definition: every point repeated until both samples have equally many, sorted and paired; and the CDFs compared on
/// every interval between points.
fn by_definition(x: &[f64], x_counts: &[usize], y: &[f64]) -> [f64; 3] {
    let total: usize = x_counts.iter().sum();
    let mut many_x: Vec<f64> = x
        .iter()
        .zip(x_counts)
        .flat_map(|(x, count)| std::iter::repeat_n(*x, count * y.len()))
        .collect();
    let mut many_y: Vec<f64> = y
        .iter()
        .flat_map(|y| std::iter::repeat_n(*y, total))
        .collect();
    many_x.sort_by(f64::total_cmp);
    many_y.sort_by(f64::total_cmp);
    let n = many_x.len() as f64;
    let pairs = || many_x.iter().zip(&many_y).map(|(x, y)| (x - y).abs());
    let mut grid: Vec<f64> = x.iter().chain(y).copied().collect();
    grid.sort_by(f64::total_cmp);
    let below = |all: &[f64], t: f64| all.iter().filter(|v| **v <= t).count() as f64 / n;
    let cramer = grid
        .windows(2)
        .map(|pair| {
            (pair[1] - pair[0]) * (below(&many_x, pair[0]) - below(&many_y, pair[0])).powi(2)
        })
        .sum();
    [
        pairs().sum::<f64>() / n,
        pairs().map(|gap| gap * gap).sum::<f64>() / n,
        cramer,
    ]
}

fn mean_distance(a: &[f32], a_weights: &[f64], b: &[f32], b_weights: &[f64], dim: usize) -> f64 {
    let mut total = 0.0;
    for (p, wp) in a.chunks_exact(dim).zip(a_weights) {
        for (q, wq) in b.chunks_exact(dim).zip(b_weights) {
            let square: f64 = p.iter().zip(q).map(|(x, y)| f64::from(x - y).powi(2)).sum();
            total += wp * wq * square.sqrt();
        }
    }
    total
}

fn close(got: f64, expected: f64, tolerance: f64) {
    assert!(
        (got - expected).abs() <= tolerance,
        "got {got}, expected {expected}"
    );
}

#[test]
fn figures_agree_with_their_definitions() {
    // N = 7, M = 9, d = 3: once with equal weights, once with weights 1..7 over 28.
    let (n, m, dim) = (7, 9, 3);
    let (cloud, reference) = (gaussian(n, dim, 1), gaussian(m, dim, 2));
    let weights: Vec<f64> = (1..=n).map(|count| count as f64).collect();
    let counts: [Vec<usize>; 2] = [vec![1; n], (1..=n).collect()];
    let clouds = [
        equal(&cloud),
        Cloud {
            points: &cloud,
            weights: Some(&weights),
        },
    ];
    let all = law_figures(&reference, dim, &clouds);
    for (figures, counts) in all.iter().zip(&counts) {
        let directions = fixed_directions(DIRECTIONS, dim);
        let slices: Vec<[f64; 3]> = directions
            .chunks_exact(dim)
            .map(|direction| {
                by_definition(
                    &project(&cloud, dim, direction),
                    counts,
                    &project(&reference, dim, direction),
                )
            })
            .collect();
        let mean =
            |k: usize| slices.iter().map(|slice| slice[k]).sum::<f64>() / slices.len() as f64;
        close(figures.sliced_wasserstein_1, mean(0), 1e-6);
        close(figures.sliced_wasserstein_2, mean(1), 1e-6);
        close(figures.sliced_cramer, mean(2), 1e-6);
        let on_grid = slices.iter().map(|slice| slice[0]).fold(0.0, f64::max);
        assert!(figures.max_sliced_wasserstein_1 >= on_grid - 1e-6);
        let total: usize = counts.iter().sum();
        let own: Vec<f64> = counts
            .iter()
            .map(|count| *count as f64 / total as f64)
            .collect();
        let truth = vec![1.0 / m as f64; m];
        let energy = 2.0 * mean_distance(&cloud, &own, &reference, &truth, dim)
            - mean_distance(&cloud, &own, &cloud, &own, dim)
            - mean_distance(&reference, &truth, &reference, &truth, dim);
        close(figures.energy_distance, energy, 1e-6);
    }
}

#[test]
fn moments_by_hand() {
    // X: (0,0), (2,2): mean (1,1), covariance [[1,1],[1,1]], correlation 1. Y: (0,2), (4,0): mean (2,1), covariance [[4,-2],[-2,1]], correlation -1.
    let figures = law_figures(&[0.0, 2.0, 4.0, 0.0], 2, &[equal(&[0.0, 0.0, 2.0, 2.0])])[0];
    close(figures.mean_error, 1.0, 1e-12);
    // Differences (-3, 3, 3, 0): sqrt(27).
    close(figures.covariance_error, 27.0_f64.sqrt(), 1e-12);
    close(figures.correlation_error, 2.0, 1e-12);
    // A single point has no variance: correlation 0 against -1.
    let figures = law_figures(&[0.0, 2.0, 4.0, 0.0], 2, &[equal(&[2.0, 1.0])])[0];
    close(figures.mean_error, 0.0, 1e-12);
    close(figures.correlation_error, 1.0, 1e-12);
}

#[test]
fn two_points_have_closed_forms() {
    // δ_0 against δ_v in the plane, ‖v‖ = 5: along θ all of W_1, ℓ_2² and √W_2² are |θ·v|, with means 5·2/π, 5·2/π and 25/2 (for the square).
    let figures = law_figures(&[3.0, 4.0], 2, &[equal(&[0.0, 0.0])])[0];
    let mean = 10.0 / std::f64::consts::PI;
    close(figures.sliced_wasserstein_1, mean, 1e-3);
    close(figures.sliced_cramer, mean, 1e-3);
    close(figures.sliced_wasserstein_2, 12.5, 1e-4);
    // The largest is along v itself; the grid comes within π/512 of it, 5(1 - cos) = 9e-5, and the refinement closer.
    close(figures.max_sliced_wasserstein_1, 5.0, 1e-6);
    close(figures.energy_distance, 10.0, 1e-5);
    close(figures.mean_error, 5.0, 1e-9);
    // d = 3: means of |θ·v| and (θ·v)² over the sphere are 1/2 and 1/3 of ‖v‖ = 3 and ‖v‖² = 9.
    let figures = law_figures(&[1.0, 2.0, 2.0], 3, &[equal(&[0.0, 0.0, 0.0])])[0];
    close(figures.sliced_wasserstein_1, 1.5, 1e-2);
    close(figures.sliced_wasserstein_2, 3.0, 1e-2);
    close(figures.max_sliced_wasserstein_1, 3.0, 1e-4);
    // d = 1: one direction, W_1 = ℓ_2² = 2 and W_2² = 4.
    let figures = law_figures(&[2.0], 1, &[equal(&[0.0])])[0];
    assert_eq!(figures.sliced_wasserstein_1, 2.0);
    assert_eq!(figures.sliced_cramer, 2.0);
    assert_eq!(figures.sliced_wasserstein_2, 4.0);
}

#[test]
fn the_max_slice_is_found_in_many_dimensions() {
    // Two Gaussian clouds shifted by 2 e_5 in d = 11: the best direction is near e_5 and W_1 there near 2 for large samples.
    let dim = 11;
    let reference = gaussian(20_000, dim, 3);
    let mut cloud = gaussian(20_000, dim, 4);
    cloud
        .iter_mut()
        .skip(5)
        .step_by(dim)
        .for_each(|x| *x += 2.0);
    let figures = law_figures(&reference, dim, &[equal(&cloud)])[0];
    close(figures.max_sliced_wasserstein_1, 2.0, 0.06);
    assert!(figures.max_sliced_wasserstein_1 > 2.0 * figures.sliced_wasserstein_1);
}

#[test]
fn ratios_are_of_sums_and_finite() {
    let figures = |value: f64| Figures::from_array([value, 0.0, value, 0.0, 1.0, 0.0, 0.0, 0.0]);
    let ratio = ratio_to_floor(&[figures(1.0), figures(4.0)], &[figures(8.0), figures(2.0)]);
    // (1 + 4) / (8 + 2), where the mean of ratios would be (1/8 + 2)/2; and 0/0 is 0.
    assert_eq!(
        ratio,
        Figures::from_array([0.5, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0, 0.0])
    );
    let ratio = ratio_to_floor(&[figures(1.0)], &[Figures::default()]);
    assert!(ratio.to_array().iter().all(|value| value.is_finite()));
}

#[test]
fn directions_are_unit_and_even() {
    for dim in [1, 2, 3, 4, 7, 32] {
        let directions = fixed_directions(DIRECTIONS, dim);
        let count = directions.len() / dim;
        assert_eq!(count, if dim == 1 { 1 } else { DIRECTIONS });
        // The mean of θθᵀ over the sphere is I/d.
        for i in 0..dim {
            let second: f64 = directions
                .iter()
                .skip(i)
                .step_by(dim)
                .map(|t| f64::from(*t).powi(2))
                .sum();
            close(second / count as f64, 1.0 / dim as f64, 0.02);
        }
        for direction in directions.chunks_exact(dim) {
            close(
                direction.iter().map(|t| f64::from(*t).powi(2)).sum(),
                1.0,
                1e-6,
            );
        }
    }
    // Within a block of d the directions are orthogonal.
    let directions = fixed_directions(DIRECTIONS, 5);
    let dot: f64 = (0..5)
        .map(|k| f64::from(directions[35 + k]) * f64::from(directions[40 + k]))
        .sum();
    close(dot, 0.0, 1e-6);
}

#[test]
fn kept_shadows_change_nothing() {
    let mut reference = Reference::new(&gaussian(700, 3, 11), 3);
    let cloud = gaussian(13, 3, 12);
    let before = reference.figures(&[equal(&cloud)]);
    reference.keep_shadows();
    assert_eq!(reference.figures(&[equal(&cloud)]), before);
}

#[test]
fn clouds_do_not_influence_each_other_nor_do_threads() {
    let reference = gaussian(500, 2, 6);
    let (a, b) = (gaussian(5, 2, 7), gaussian(11, 2, 8));
    let together = law_figures(&reference, 2, &[equal(&a), equal(&b)]);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(1)
        .build()
        .unwrap();
    assert_eq!(
        pool.install(|| law_figures(&reference, 2, &[equal(&b)])),
        together[1..]
    );
}

#[test]
fn a_large_offset_costs_no_digits() {
    // All values are multiples of 2^-6 below 2^10, so the shift by 2^14 is exact in f32.
    let coarse = |points: Vec<f32>| -> Vec<f32> {
        points.iter().map(|x| (x * 64.0).round() / 64.0).collect()
    };
    let (cloud, reference) = (coarse(gaussian(7, 2, 9)), coarse(gaussian(300, 2, 10)));
    let shifted = |points: &[f32]| -> Vec<f32> { points.iter().map(|x| x + 16384.0).collect() };
    let near = law_figures(&reference, 2, &[equal(&cloud)])[0].to_array();
    let far = law_figures(&shifted(&reference), 2, &[equal(&shifted(&cloud))])[0].to_array();
    for (a, b) in near.iter().zip(far) {
        close(b, *a, 1e-6);
    }
}

proptest! {
    #[test]
    fn identical_laws_are_at_distance_zero(seed in 0_u64..1000, dim in 1_usize..5, copies in 1_usize..4) {
        // Repeating every point, in any order, changes no law.
        let cloud = gaussian(7, dim, seed);
        let mut repeated = cloud.repeat(copies);
        repeated.rotate_left(3 * dim);
        for figure in law_figures(&repeated, dim, &[equal(&cloud)])[0].to_array() {
            prop_assert!(figure.abs() < 1e-6, "{figure}");
        }
    }

    #[test]
    fn integer_weights_are_repetitions(seed in 0_u64..1000, counts in prop::collection::vec(1_usize..5, 5)) {
        let (cloud, reference) = (gaussian(5, 3, seed), gaussian(11, 3, seed + 1000));
        let weights: Vec<f64> = counts.iter().map(|count| *count as f64).collect();
        let repeated: Vec<f32> = cloud
            .chunks_exact(3)
            .zip(&counts)
            .flat_map(|(point, count)| point.repeat(*count))
            .collect();
        let weighted = Cloud { points: &cloud, weights: Some(&weights) };
        let figures = law_figures(&reference, 3, &[weighted, equal(&repeated)]);
        for (name, (a, b)) in Figures::NAMES.iter().zip(figures[0].to_array().into_iter().zip(figures[1].to_array())) {
            // The refinement follows rounding where directions tie, so the maximum is only near.
            let tolerance = if *name == "max_sliced_wasserstein_1" { 1e-2 } else { 1e-6 };
            prop_assert!((a - b).abs() < tolerance, "{name}: {a} {b}");
        }
    }
}
