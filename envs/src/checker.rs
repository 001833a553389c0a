//! A check that any environment can be put through: what the rest of the suite relies on, tried out step by step.

use rand::RngCore;

use crate::{
    Env, EnvError, MAX_REWARD_DIM, ObservationKind, ObservationMut, Outcome, StreamRng, VectorEnv,
};

/// How an environment is checked.
#[derive(Clone, Copy, Debug)]
pub struct CheckOptions {
    /// Number of uniform-random steps.
    pub steps: usize,
    /// Root seed of the actions and the dynamics.
    pub seed: u64,
    /// Number of allocations that this thread has made so far, from a counting allocator; `None` skips that check.
    pub allocations: Option<fn() -> u64>,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            steps: 2000,
            seed: 0,
            allocations: None,
        }
    }
}

/// The first fault that was found, in one line.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The environment could not be built, saved or loaded.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The environment breaks a rule.
    #[error("{name} at step {step}: {fault}")]
    Fault {
        /// Registry name.
        name: String,
        /// Steps taken before.
        step: usize,
        /// What was got and what was expected.
        fault: String,
    },
}

/// An observation in either element type, compared bit by bit.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    floats: Vec<f32>,
    bytes: Vec<u8>,
}

impl Seen {
    fn new(kind: ObservationKind, length: usize) -> Self {
        match kind {
            ObservationKind::F32 => Self {
                floats: vec![0.0; length],
                bytes: Vec::new(),
            },
            ObservationKind::U8 => Self {
                floats: Vec::new(),
                bytes: vec![0; length],
            },
        }
    }

    /// Fills with a value that an environment which writes every element leaves no trace of.
    fn poison(&mut self, pattern: u8) {
        self.floats.fill(if pattern == 0 {
            f32::NAN
        } else {
            f32::INFINITY
        });
        self.bytes.fill(pattern);
    }

    fn as_mut(&mut self) -> ObservationMut<'_> {
        if self.bytes.is_empty() {
            ObservationMut::F32(&mut self.floats)
        } else {
            ObservationMut::U8(&mut self.bytes)
        }
    }

    /// The first element outside the bounds.
    fn outside(&self, low: f32, high: f32) -> Option<f32> {
        let bytes = self.bytes.iter().map(|byte| f32::from(*byte));
        self.floats
            .iter()
            .copied()
            .chain(bytes)
            .find(|value| !(low..=high).contains(value))
    }
}

/// One environment with its stream and what it last gave.
struct Run {
    env: Box<dyn Env>,
    rng: StreamRng,
    seen: Seen,
    reward: Vec<f32>,
    outcome: Outcome,
}

impl Run {
    fn new(env: Box<dyn Env>, seed: u64, pattern: u8) -> Self {
        let spec = env.spec();
        let mut run = Self {
            seen: Seen::new(spec.observation.kind, spec.observation.len()),
            reward: vec![0.0; spec.reward_dim],
            rng: StreamRng::new(seed, "checker dynamics", 0),
            outcome: Outcome::Continue,
            env,
        };
        run.seen.poison(pattern);
        run
    }

    fn reset(&mut self, pattern: u8) {
        self.seen.poison(pattern);
        self.env.reset(&mut self.rng, self.seen.as_mut());
        self.outcome = Outcome::Continue;
    }

    fn step(&mut self, action: usize, pattern: u8) {
        self.seen.poison(pattern);
        self.reward.fill(f32::NAN);
        self.outcome = self
            .env
            .step(action, &mut self.rng, &mut self.reward, self.seen.as_mut());
    }

    fn saved(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.env.save(&mut bytes);
        bytes
    }
}

/// Plays an environment with uniform-random actions and checks that it keeps every rule of [`Env`].
///
/// Checked are the specification; that observations and rewards are written in full, finite and within bounds; that the same seed
/// gives the same trajectory; that `observe` gives what the step gave, also at the end of an episode; that an episode is truncated
/// exactly at its time limit and may be stepped on from there; that a saved state goes on identically in another copy, and a cut-off
/// one is refused without harm; that nothing is paid once absorbed; and, with a counting allocator, that no step allocates.
///
/// ```
/// use pushforward_envs::EnvConfig;
/// use pushforward_envs::checker::{CheckOptions, check};
/// check(&|| EnvConfig::default().build(), CheckOptions::default())?;
/// # Ok::<(), pushforward_envs::checker::CheckError>(())
/// ```
///
/// # Errors
/// [`CheckError`] with the first broken rule.
pub fn check(
    build: &dyn Fn() -> Result<Box<dyn Env>, EnvError>,
    options: CheckOptions,
) -> Result<(), CheckError> {
    let mut run = Run::new(build()?, options.seed, 0);
    let mut twin = Run::new(build()?, options.seed, 1);
    let spec = run.env.spec().clone();
    let fault = |step: usize, fault: String| {
        Err(CheckError::Fault {
            name: spec.name.clone(),
            step,
            fault,
        })
    };
    if let Some(message) = spec_fault(&run) {
        return fault(0, message);
    }
    let mut actions = StreamRng::new(options.seed, "checker actions", 0);
    let mut length = 0;
    run.reset(0);
    twin.reset(1);
    for step in 0..options.steps {
        if run.seen != twin.seen || run.reward != twin.reward || run.outcome != twin.outcome {
            return fault(
                step,
                "two runs of one seed differ, or not all of the observation is written".to_owned(),
            );
        }
        if let Some(message) = state_fault(&mut run) {
            return fault(step, message);
        }
        if step % 7 == 3
            && let Some(message) = save_fault(&mut run, build()?)?
        {
            return fault(step, message);
        }
        let over = spec.max_steps.is_some_and(|limit| length >= limit + 3);
        if run.outcome == Outcome::Terminated || over {
            run.reset(0);
            twin.reset(1);
            length = 0;
            continue;
        }
        let absorbed = run.env.absorbed();
        let action = (actions.next_u32() as usize) % spec.actions();
        let before = options.allocations.map(|count| count());
        run.step(action, 0);
        if before != options.allocations.map(|count| count()) {
            return fault(step, "the step allocates memory".to_owned());
        }
        twin.step(action, 1);
        length += 1;
        if let Some(reward) = run.reward.iter().find(|reward| !reward.is_finite()) {
            return fault(step, format!("reward {reward}, expected a finite number"));
        }
        if absorbed && run.reward.iter().any(|reward| *reward != 0.0) {
            return fault(
                step,
                format!("reward {:?} after being absorbed", run.reward),
            );
        }
        let limit = spec.max_steps.is_some_and(|limit| length >= limit);
        if run.outcome != Outcome::Terminated && limit != (run.outcome == Outcome::Truncated) {
            return fault(
                step,
                format!(
                    "{:?} after {length} steps of an episode with the time limit {:?}",
                    run.outcome, spec.max_steps
                ),
            );
        }
    }
    vector_fault(build, options)?.map_or(Ok(()), |message| fault(options.steps, message))
}

/// What is wrong with the specification.
fn spec_fault(run: &Run) -> Option<String> {
    let spec = run.env.spec();
    let observation = &spec.observation;
    if spec.name.is_empty() || spec.action_names.is_empty() || observation.is_empty() {
        return Some("an empty name, action list or observation".to_owned());
    }
    if !(1..=MAX_REWARD_DIM).contains(&spec.reward_dim) {
        return Some(format!(
            "reward length {}, expected 1 to {MAX_REWARD_DIM}",
            spec.reward_dim
        ));
    }
    if spec
        .constraints
        .iter()
        .any(|constraint| constraint.dim >= spec.reward_dim)
    {
        return Some("a constraint on a coordinate that the reward lacks".to_owned());
    }
    let ordered = observation.low <= observation.high;
    (!ordered || spec.max_steps == Some(0))
        .then(|| "bounds or a time limit that nothing can meet".to_owned())
}

/// What is wrong with the state that was just reached.
fn state_fault(run: &mut Run) -> Option<String> {
    let observation = run.env.spec().observation.clone();
    if let Some(value) = run.seen.outside(observation.low, observation.high) {
        return Some(format!(
            "observation holds {value}, expected {} to {}",
            observation.low, observation.high
        ));
    }
    let mut again = run.seen.clone();
    again.poison(0);
    run.env.observe(again.as_mut());
    if again != run.seen {
        return Some("the observation given is not that of the true successor".to_owned());
    }
    if let Some((state, count)) = run.env.table_state()
        && state >= count
    {
        return Some(format!("table state {state} of {count}"));
    }
    let picture = run.env.picture()?;
    (picture.rgb.len() != picture.width * picture.height * 3)
        .then(|| "a picture whose bytes are not width x height x 3".to_owned())
}

/// What is wrong with saving now and loading into `copy`.
fn save_fault(run: &mut Run, copy: Box<dyn Env>) -> Result<Option<String>, EnvError> {
    let bytes = run.saved();
    let mut copy = Run::new(copy, 0, 0);
    copy.reset(0);
    copy.env.load(&bytes)?;
    copy.rng = run.rng.clone();
    copy.env.observe(copy.seen.as_mut());
    if copy.saved() != bytes || copy.seen != run.seen || copy.env.absorbed() != run.env.absorbed() {
        return Ok(Some("a loaded state is not the saved one".to_owned()));
    }
    let mut cut = bytes.clone();
    cut.truncate(3);
    if cut.len() < bytes.len() && (copy.env.load(&cut).is_ok() || copy.saved() != bytes) {
        return Ok(Some("a cut-off state is accepted or does harm".to_owned()));
    }
    if run.outcome == Outcome::Terminated {
        return Ok(None);
    }
    // A second copy takes the step unseen: it must end where the first does.
    let action = run.env.spec().actions() - 1;
    let mut unseen = Run::new(copy.env, 0, 0);
    unseen.rng = run.rng.clone();
    unseen.env.step(
        action,
        &mut unseen.rng,
        &mut unseen.reward,
        ObservationMut::Skip,
    );
    unseen.env.observe(unseen.seen.as_mut());
    let after = unseen.saved();
    unseen.env.load(&bytes)?;
    let (reward, seen) = (unseen.reward.clone(), unseen.seen.clone());
    unseen.rng = run.rng.clone();
    unseen.step(action, 0);
    if unseen.reward != reward || unseen.seen != seen || unseen.saved() != after {
        return Ok(Some(
            "a loaded state goes on differently, or a step depends on being observed".to_owned(),
        ));
    }
    Ok(None)
}

/// What is wrong with the environment under the vector stepper: its successors must be those of lone copies.
fn vector_fault(
    build: &dyn Fn() -> Result<Box<dyn Env>, EnvError>,
    options: CheckOptions,
) -> Result<Option<String>, EnvError> {
    const COPIES: usize = 3;
    let envs = (0..COPIES).map(|_| build()).collect::<Result<_, _>>()?;
    let mut vector = VectorEnv::from_envs(envs, options.seed, "checker vector")?;
    let mut lone = Vec::new();
    for index in 0..COPIES as u64 {
        let mut run = Run::new(build()?, 0, 0);
        run.rng = StreamRng::new(options.seed, "checker vector", index);
        run.reset(0);
        lone.push(run);
    }
    let mut actions = StreamRng::new(options.seed, "checker actions", 1);
    let (length, dim) = (vector.spec().observation.len(), vector.spec().reward_dim);
    for _ in 0..options.steps {
        let chosen: [usize; COPIES] =
            std::array::from_fn(|_| (actions.next_u32() as usize) % vector.spec().actions());
        vector.step_all(&chosen);
        for (index, run) in lone.iter_mut().enumerate() {
            run.step(chosen[index], 0);
            let same = |run: &Run, buffer: &crate::ObservationBuffer| match buffer {
                crate::ObservationBuffer::F32(values) => {
                    values[index * length..][..length] == run.seen.floats
                }
                crate::ObservationBuffer::U8(values) => {
                    values[index * length..][..length] == run.seen.bytes
                }
            };
            if vector.rewards()[index * dim..][..dim] != run.reward
                || vector.outcomes()[index] != run.outcome
                || !same(run, vector.successors())
            {
                return Ok(Some(
                    "the vector stepper gives another successor".to_owned(),
                ));
            }
            if run.outcome != Outcome::Continue {
                run.reset(0);
            }
            if !same(run, vector.observations()) {
                return Ok(Some(
                    "the vector stepper goes on from another state".to_owned(),
                ));
            }
        }
    }
    Ok(None)
}
