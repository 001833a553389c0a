//! Values that change over a run, such as learning rates and exploration.

use serde::{Deserialize, Serialize, de};

/// Shape of a [`Schedule`] between its ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleShape {
    /// A straight line.
    #[default]
    Linear,
    /// Half a cosine: flat at both ends.
    Cosine,
    /// A constant ratio per step; both ends must be positive.
    Exponential,
}

/// A value that goes from `initial` to `final` over the first `fraction` of the run, then stays.
///
/// In a configuration a bare number is a constant.
///
/// ```
/// use pushforward_core::schedule::{Schedule, ScheduleShape};
/// let schedule = Schedule { initial: 1.0, last: 0.2, shape: ScheduleShape::Linear, fraction: 0.5 };
/// assert_eq!(schedule.at(0.0), 1.0);
/// assert!((schedule.at(0.25) - 0.6).abs() < 1e-12); // half-way through the first half: (1 + .2) / 2
/// assert!((schedule.at(0.9) - 0.2).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// Value at the start.
    pub initial: f64,
    /// Value at the end, written `final` in a configuration.
    #[serde(rename = "final")]
    pub last: f64,
    /// How the value moves between the two.
    pub shape: ScheduleShape,
    /// Fraction of the run, in (0, 1], after which the final value is reached.
    pub fraction: f64,
}

impl Schedule {
    /// A value that never changes.
    pub fn constant(value: f64) -> Self {
        Self {
            initial: value,
            last: value,
            shape: ScheduleShape::Linear,
            fraction: 1.0,
        }
    }

    /// The value when `progress` (0 to 1) of the run is done.
    pub fn at(&self, progress: f64) -> f64 {
        let part = (progress / self.fraction).clamp(0.0, 1.0);
        match self.shape {
            ScheduleShape::Linear => self.initial + (self.last - self.initial) * part,
            ScheduleShape::Cosine => {
                let weight = 0.5 * (1.0 + (std::f64::consts::PI * part).cos());
                self.last + (self.initial - self.last) * weight
            }
            ScheduleShape::Exponential => self.initial * (self.last / self.initial).powf(part),
        }
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            initial: f64,
            #[serde(rename = "final")]
            last: f64,
            #[serde(default)]
            shape: ScheduleShape,
            #[serde(default = "whole_run")]
            fraction: f64,
        }
        fn whole_run() -> f64 {
            1.0
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Schedule;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(
                    "a number or a schedule { initial, final, shape = linear | cosine | exponential, fraction }",
                )
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Schedule, E> {
                Ok(Schedule::constant(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Schedule, E> {
                Ok(Schedule::constant(value as f64))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Schedule, E> {
                Ok(Schedule::constant(value as f64))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Schedule, A::Error> {
                let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                if !(table.fraction > 0.0 && table.fraction <= 1.0) {
                    return Err(de::Error::custom(format!(
                        "fraction: got {}, expected more than 0 and at most 1",
                        table.fraction
                    )));
                }
                if table.shape == ScheduleShape::Exponential
                    && !(table.initial > 0.0 && table.last > 0.0)
                {
                    return Err(de::Error::custom(
                        "an exponential schedule needs positive initial and final values",
                    ));
                }
                Ok(Schedule {
                    initial: table.initial,
                    last: table.last,
                    shape: table.shape,
                    fraction: table.fraction,
                })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
