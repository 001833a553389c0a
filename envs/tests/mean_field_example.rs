//! The example of a user's own game runs, and its solution is nearly an equilibrium.

use pushforward_envs::mean_field::{MeanFieldGame, NoisePaths, Policies, PushForward};

#[path = "../examples/epidemic.rs"]
mod epidemic;

#[test]
fn the_epidemic_is_solved() {
    epidemic::main().unwrap();
    let (solution, rollout) = epidemic::solve(10).unwrap();
    let (first, last) = (solution.exploitability[0], solution.exploitability[400]);
    assert!((0.0..0.05 * first).contains(&last), "{first} to {last}");

    // Nobody keeps their distance.
    let careless = |days: usize| {
        let game = epidemic::Epidemic::new(days);
        let policy = [1.0, 0.0, 1.0, 0.0];
        let policies = Policies::new(game.spec(), 1, vec![&policy]).unwrap();
        let noise = NoisePaths::sample(&game, 1, 0).unwrap();
        let rollout = PushForward::new(&game).unwrap().run(noise, &policies);
        rollout.unwrap().mu(days)[1]
    };
    // At rest .9 i (1 - i) = .3 i, so i = 2/3.
    assert!((careless(100) - 2.0 / 3.0).abs() < 1e-6);
    // Prudence pays in the end: fewer are infected than when nobody cares.
    let prudent = rollout.mu(10)[1];
    assert!(prudent < careless(10) - 0.05, "{prudent}, {}", careless(10));
}
