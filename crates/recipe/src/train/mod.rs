//! The `train` section: loss, optimizer, schedule and how the work is cut.
//!
//! What one training method alone knows is in its file of [`methods`].

pub mod methods;

pub use methods::{Coded, LinearPrecision, Method, StoredRows, Traits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The `train` section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Passes over the training examples.
    #[serde(default = "ten")]
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    pub epochs: usize,
    /// Examples per step. `method: coded` takes all where it is left out, and else the same range of places of every block.
    #[serde(default = "batch_default")]
    #[cfg_attr(test, schemars(range(min = 1, max = 1_073_741_824)))]
    pub batch: usize,
    /// Micro-shards each batch is cut into. The result depends on this number, never on the machines.
    #[serde(default = "eight")]
    #[cfg_attr(test, schemars(range(min = 1, max = 4096)))]
    pub shards: usize,
    /// What is minimised.
    #[serde(default)]
    pub loss: Loss,
    /// Share of the target spread evenly over the classes (cross_entropy only).
    #[serde(default)]
    #[cfg_attr(test, schemars(range(min = 0.0, max = 0.999)))]
    pub label_smoothing: f32,
    /// How parameters follow their gradients.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// How the learning rate changes.
    #[serde(default)]
    pub schedule: Schedule,
    /// Steps over which the learning rate rises linearly from zero, before the schedule.
    #[serde(default)]
    pub warmup_steps: u64,
    /// Largest global norm of the gradient; no limit when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// Ends training when validation stops improving.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_stopping: Option<EarlyStopping>,
    /// L2 regularisation of a linear model (`method: coded`): l2/2·|w|² is added to the mean loss, the bias left out.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub l2: f64,
    /// What an example of a label counts (`method: coded`); 1 for labels that are not listed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub class_weights: BTreeMap<String, f64>,
    /// How the work is shared out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub method: Method,
    /// The code of `method: coded`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coded: Option<Coded>,
    /// Workers beyond the first that compute each shard of a step (`method: sync`): so many may be
    /// lost or late in a step without a wait. 0 computes a shard again where it is lost.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(test, schemars(range(min = 0, max = 15)))]
    pub redundancy: usize,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for Train {
    fn default() -> Self {
        Self {
            epochs: ten(),
            batch: batch_default(),
            shards: eight(),
            loss: Loss::default(),
            label_smoothing: 0.0,
            optimizer: Optimizer::default(),
            schedule: Schedule::default(),
            warmup_steps: 0,
            clip_norm: None,
            early_stopping: None,
            l2: 0.0,
            class_weights: BTreeMap::new(),
            method: Method::default(),
            coded: None,
            redundancy: 0,
        }
    }
}

crate::json::json!(Loss);

/// Losses. Networks end in plain outputs (logits); a last `softmax` (cross_entropy) or `sigmoid` (binary_cross_entropy) is folded into the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Softmax and negative log likelihood of the class.
    #[default]
    CrossEntropy,
    /// Sigmoid and negative log likelihood of each output.
    BinaryCrossEntropy,
    /// Mean squared error.
    Mse,
    /// mean max(0, 1 − y·f), y = ±1
    Hinge,
    /// mean max(0, 1 − y·f)², y = ±1
    SquaredHinge,
}

/// Optimizers and their constants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
    /// Adam (Kingma and Ba 2015); weight decay is added to the gradient.
    Adam(Adam),
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    Adamw(Adam),
    /// RMSprop (Tieleman and Hinton 2012).
    Rmsprop(Rmsprop),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Sgd(Sgd::default())
    }
}

impl Optimizer {
    /// Learning rate before warm-up and schedule.
    pub fn learning_rate(&self) -> f32 {
        match self {
            Self::Sgd(o) => o.learning_rate,
            Self::Adam(o) | Self::Adamw(o) => o.learning_rate,
            Self::Rmsprop(o) => o.learning_rate,
        }
    }
}

/// Constants of `sgd`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Sgd {
    /// Step size.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub learning_rate: f32,
    /// Share of the last update kept.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub momentum: f32,
    /// Look ahead along the momentum.
    pub nesterov: bool,
    /// L2 penalty added to the gradient.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub weight_decay: f32,
}

impl Default for Sgd {
    fn default() -> Self {
        Self { learning_rate: 0.01, momentum: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// Constants of `adam` and `adamw`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Adam {
    /// Step size.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub learning_rate: f32,
    /// Decay of the gradient's mean.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub beta_1: f32,
    /// Decay of the gradient's square.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub beta_2: f32,
    /// Added to the denominator.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub epsilon: f32,
    /// Weight decay (L2 for `adam`, decoupled for `adamw`).
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub weight_decay: f32,
}

impl Default for Adam {
    fn default() -> Self {
        Self { learning_rate: 0.001, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

/// Constants of `rmsprop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Rmsprop {
    /// Step size.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub learning_rate: f32,
    /// Decay of the gradient's square.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub rho: f32,
    /// Share of the last update kept.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub momentum: f32,
    /// Added to the denominator.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub epsilon: f32,
    /// L2 penalty added to the gradient.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub weight_decay: f32,
}

impl Default for Rmsprop {
    fn default() -> Self {
        Self { learning_rate: 0.001, rho: 0.9, momentum: 0.0, epsilon: 1e-7, weight_decay: 0.0 }
    }
}

/// How the learning rate changes after warm-up.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// Stays as it is.
    #[default]
    Constant,
    /// Multiplied by `factor` every `epochs` epochs.
    Step(StepSchedule),
    /// Half a cosine from the full rate to `final_factor` of it over the whole run.
    Cosine(CosineSchedule),
}

/// Constants of the `step` schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StepSchedule {
    /// Epochs between drops.
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    pub epochs: usize,
    /// What the rate is multiplied by.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub factor: f32,
}

impl Default for StepSchedule {
    fn default() -> Self {
        Self { epochs: 10, factor: 0.1 }
    }
}

/// Constants of the `cosine` schedule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CosineSchedule {
    /// Share of the full rate that is left at the end.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1.0)))]
    pub final_factor: f32,
}

/// When training ends early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EarlyStopping {
    /// What is watched on the validation part.
    pub monitor: Monitor,
    /// Epochs without improvement before it ends.
    #[cfg_attr(test, schemars(range(min = 1, max = 1_000_000)))]
    pub patience: usize,
    /// Smallest change that counts.
    #[cfg_attr(test, schemars(range(min = 0.0, max = 1000.0)))]
    pub min_delta: f32,
}

impl Default for EarlyStopping {
    fn default() -> Self {
        Self { monitor: Monitor::Loss, patience: 5, min_delta: 0.0 }
    }
}

/// What early stopping and the best checkpoint go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Monitor {
    /// Validation loss, smaller is better.
    #[default]
    Loss,
    /// Validation accuracy, larger is better.
    Accuracy,
}

fn ten() -> usize {
    10
}
fn batch_default() -> usize {
    128
}
fn eight() -> usize {
    8
}
