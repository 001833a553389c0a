use super::*;

fn config(text: &str) -> EnvConfig {
    toml::from_str(text).unwrap()
}

fn floats(buffer: &ObservationBuffer) -> &[f32] {
    match buffer {
        ObservationBuffer::F32(values) => values,
        ObservationBuffer::U8(_) => panic!("floats expected"),
    }
}

#[test]
fn the_true_successor_is_given_and_the_next_episode_has_begun() {
    // Two states without slip: every second step leaves. The final observation marks no state, the fresh one the first.
    let config = config("name = \"chain\"\nlength = 2\nslip = 0");
    let mut envs = VectorEnv::new(&config, 3, 1, "vector test").unwrap();
    assert_eq!(floats(envs.observations()), [1.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    envs.step_all(&[0, 0, 0]);
    assert_eq!(envs.outcomes(), [Outcome::Continue; 3]);
    assert_eq!(envs.successors(), envs.observations());
    assert_eq!(envs.successor_states(), [1, 1, 1]);
    envs.reset_one(1);
    envs.step_all(&[0, 0, 0]);
    use Outcome::{Continue, Terminated};
    assert_eq!(envs.outcomes(), [Terminated, Continue, Terminated]);
    assert_eq!(floats(envs.successors()), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!(floats(envs.observations()), [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(envs.successor_states(), [1, 1, 1]);
    assert_eq!(envs.table_states(), [0, 1, 0]);
}

/// Every buffer after one step.
#[derive(PartialEq)]
struct Step {
    rewards: Vec<f32>,
    outcomes: Vec<Outcome>,
    successors: ObservationBuffer,
    observations: ObservationBuffer,
    table_states: Vec<u32>,
}

/// The action that [`trace`] takes.
fn action(index: usize, step: usize, actions: usize) -> usize {
    (index * 7 + step * 3 + index * step) % actions
}

fn trace(envs: &mut VectorEnv, steps: usize) -> Vec<Step> {
    let actions = envs.spec().actions();
    (0..steps)
        .map(|step| {
            let chosen: Vec<usize> = (0..envs.count())
                .map(|index| action(index, step, actions))
                .collect();
            envs.step_all(&chosen);
            Step {
                rewards: envs.rewards().to_vec(),
                outcomes: envs.outcomes().to_vec(),
                successors: envs.successors().clone(),
                observations: envs.observations().clone(),
                table_states: envs.table_states().to_vec(),
            }
        })
        .collect()
}

#[test]
fn threads_do_not_change_results() {
    // 1031 chains and 19 images are both more than is stepped serially, and neither number is a multiple of the groups.
    for (text, count) in [
        ("name = \"chain\"", 1031),
        ("name = \"maze/inclusive\"\nobservation = \"image\"", 19),
    ] {
        let config = config(text);
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            pool.install(|| {
                trace(
                    &mut VectorEnv::new(&config, count, 5, "vector test").unwrap(),
                    12,
                )
            })
        };
        let one = run(1);
        assert!(one == run(3));
        // And the group is not what decides: a lone environment with its stream does the same.
        let mut lone = config.build().unwrap();
        let mut rng = StreamRng::new(5, "vector test", count as u64 - 1);
        lone.reset(&mut rng, ObservationMut::Skip);
        let mut reward = vec![0.0; lone.spec().reward_dim];
        for (step, seen) in one.iter().enumerate() {
            let index = count - 1;
            let action = action(index, step, lone.spec().actions());
            let outcome = lone.step(action, &mut rng, &mut reward, ObservationMut::Skip);
            assert_eq!(
                (&seen.rewards[index * reward.len()..], seen.outcomes[index]),
                (&reward[..], outcome)
            );
            if outcome != Outcome::Continue {
                lone.reset(&mut rng, ObservationMut::Skip);
            }
        }
    }
}

#[test]
fn a_saved_vector_goes_on_identically() {
    for text in [
        "name = \"chain\"\nreward = { kind = \"gaussian\" }",
        "name = \"maze/constraint-d\"\nobservation = \"grid\"\nmax_steps = 9",
        "name = \"maze/exclusive\"\nobservation = \"image\"\nsize = 20",
        "name = \"gymnasium/cartpole\"",
    ] {
        let config = config(text);
        let mut first = VectorEnv::new(&config, 5, 2, "vector test").unwrap();
        trace(&mut first, 23);
        let mut bytes = Vec::new();
        first.save(&mut bytes);
        let mut second = VectorEnv::new(&config, 5, 77, "another label").unwrap();
        second.load(&bytes).unwrap();
        assert_eq!(first.observations(), second.observations(), "{text}");
        assert_eq!(first.table_states(), second.table_states());
        assert!(trace(&mut first, 31) == trace(&mut second, 31), "{text}");
    }
}

#[test]
fn a_foreign_vector_state_is_refused() {
    let config = config("name = \"chain\"");
    let envs = VectorEnv::new(&config, 5, 2, "vector test").unwrap();
    let mut bytes = Vec::new();
    envs.save(&mut bytes);
    let mut other = VectorEnv::new(&config, 4, 2, "vector test").unwrap();
    let message = other.load(&bytes).unwrap_err().to_string();
    assert_eq!(message, "environment state: 5 environments, expected 4");
    let mut same = VectorEnv::new(&config, 5, 2, "vector test").unwrap();
    for bad in [
        &bytes[..0],
        &bytes[..9],
        &bytes[..bytes.len() - 1],
        b"a text that is no state",
    ] {
        assert!(same.load(bad).is_err());
    }
    bytes.push(0);
    assert!(
        same.load(&bytes)
            .unwrap_err()
            .to_string()
            .contains("1 bytes after")
    );
}

#[test]
fn a_vector_needs_environments_of_one_kind() {
    let message = VectorEnv::new(&EnvConfig::default(), 0, 0, "vector test")
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("0 environments, expected at least 1"),
        "{message}"
    );
    let envs = ["length = 3", "length = 4"].map(|line| {
        config(&format!("name = \"chain\"\n{line}"))
            .build()
            .unwrap()
    });
    let message = VectorEnv::from_envs(envs.into(), 0, "vector test")
        .err()
        .unwrap()
        .to_string();
    assert!(
        message.contains("environment 1 has another specification"),
        "{message}"
    );
}
