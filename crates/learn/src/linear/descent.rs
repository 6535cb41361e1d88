//! The optimizers of `numerics::optimizer` in f64, for the few weights of a linear model.
//!
//! The same formulas, element by element. Constants are the decimals that the recipe shows: 0.95
//! is 0.95 here, not the nearest number of single precision.

use planaria_recipe::train::Optimizer;

/// An optimizer and its constants in f64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Constants {
    Sgd { momentum: f64, nesterov: bool, decay: f64 },
    Adam { beta_1: f64, beta_2: f64, epsilon: f64, decay: f64, decoupled: bool },
    Rmsprop { rho: f64, momentum: f64, epsilon: f64, decay: f64 },
}

impl Constants {
    pub fn of(optimizer: &Optimizer) -> Self {
        match optimizer {
            Optimizer::Sgd(o) => Self::Sgd {
                momentum: decimal(o.momentum),
                nesterov: o.nesterov,
                decay: decimal(o.weight_decay),
            },
            Optimizer::Adam(o) | Optimizer::Adamw(o) => Self::Adam {
                beta_1: decimal(o.beta_1),
                beta_2: decimal(o.beta_2),
                epsilon: decimal(o.epsilon),
                decay: decimal(o.weight_decay),
                decoupled: matches!(optimizer, Optimizer::Adamw(_)),
            },
            Optimizer::Rmsprop(o) => Self::Rmsprop {
                rho: decimal(o.rho),
                momentum: decimal(o.momentum),
                epsilon: decimal(o.epsilon),
                decay: decimal(o.weight_decay),
            },
        }
    }

    pub fn slots(&self) -> usize {
        match self {
            Self::Sgd { momentum, .. } => usize::from(*momentum != 0.0),
            Self::Adam { .. } => 2,
            Self::Rmsprop { momentum, .. } => 1 + usize::from(*momentum != 0.0),
        }
    }
}

/// The number that the shortest digits of `value` are.
pub(super) fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

/// One update; `step` counts from 0.
pub(super) fn update(
    constants: &Constants,
    step: u64,
    rate: f64,
    weights: &mut [f64],
    gradient: &[f64],
    slots: &mut [Vec<f64>],
) {
    let pairs = weights.iter_mut().zip(gradient);
    match (*constants, slots) {
        (Constants::Sgd { decay, .. }, []) => {
            pairs.for_each(|(w, g)| *w -= rate * (g + decay * *w));
        }
        (Constants::Sgd { momentum, nesterov, decay }, [v]) => {
            for (i, (w, g)) in pairs.enumerate() {
                let g = g + decay * *w;
                v[i] = momentum * v[i] + g;
                *w -= rate * if nesterov { g + momentum * v[i] } else { v[i] };
            }
        }
        (Constants::Adam { beta_1, beta_2, epsilon, decay, decoupled }, [m, v]) => {
            let t = (step + 1) as f64;
            let corrected = |beta: f64| 1.0 - libm::pow(beta, t);
            let (scaled, root) = (rate / corrected(beta_1), 1.0 / corrected(beta_2).sqrt());
            for (i, (w, g)) in pairs.enumerate() {
                let g = g + if decoupled { 0.0 } else { decay * *w };
                if decoupled {
                    *w *= 1.0 - rate * decay;
                }
                m[i] = beta_1 * m[i] + (1.0 - beta_1) * g;
                v[i] = beta_2 * v[i] + (1.0 - beta_2) * (g * g);
                *w -= scaled * m[i] / (v[i].sqrt() * root + epsilon);
            }
        }
        (Constants::Rmsprop { rho, momentum, epsilon, decay }, [v, rest @ ..]) => {
            for (i, (w, g)) in pairs.enumerate() {
                let g = g + decay * *w;
                v[i] = rho * v[i] + (1.0 - rho) * (g * g);
                let change = g / (v[i].sqrt() + epsilon);
                let change = match rest.first_mut() {
                    Some(buffer) => {
                        buffer[i] = momentum * buffer[i] + change;
                        buffer[i]
                    }
                    None => change,
                };
                *w -= rate * change;
            }
        }
        _ => unreachable!("`slots` says how many slots an optimizer has"),
    }
}
