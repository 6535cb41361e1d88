//! Losses from their definitions.

use planaria_recipe::Layer;
use planaria_recipe::model::Activation;
use planaria_recipe::train::Loss;

/// Targets of a case.
#[derive(Clone)]
pub enum Wanted {
    /// One class per example.
    Classes(Vec<u32>),
    /// As many values per example as there are outputs.
    Values(Vec<f32>),
}

/// The layers without a last activation that the loss computes itself.
pub fn scored(layers: &[Layer], loss: Loss) -> Vec<Layer> {
    let mut layers = layers.to_vec();
    let folded = |f: Activation| {
        matches!(
            (f, loss),
            (Activation::Softmax, Loss::CrossEntropy)
                | (Activation::Sigmoid, Loss::BinaryCrossEntropy)
        )
    };
    match layers.last_mut() {
        Some(Layer::Dense(d)) if folded(d.activation) => d.activation = Activation::Linear,
        Some(Layer::Residual(r)) if folded(r.activation) => r.activation = Activation::Linear,
        Some(Layer::Activation(f)) if folded(*f) => *f = Activation::Linear,
        _ => {}
    }
    layers
}

/// Loss of one example.
pub fn loss(loss: Loss, smoothing: f64, outputs: &[f64], wanted: &Wanted, example: usize) -> f64 {
    let units = outputs.len();
    let target = |u: usize| match wanted {
        Wanted::Values(v) => f64::from(v[example * units + u]),
        Wanted::Classes(c) if units == 1 => f64::from(c[example]),
        Wanted::Classes(c) if c[example] as usize == u => 1.0,
        Wanted::Classes(_) => 0.0,
    };
    let sign = |u: usize| if target(u) > 0.5 { 1.0 } else { -1.0 };
    let mean = |f: &dyn Fn(f64, usize) -> f64| {
        outputs.iter().enumerate().map(|(u, o)| f(*o, u)).sum::<f64>() / units as f64
    };
    match loss {
        Loss::CrossEntropy => {
            let sum: f64 = outputs.iter().map(|o| libm::exp(*o)).sum();
            let wanted = |u: usize| target(u) * (1.0 - smoothing) + smoothing / units as f64;
            let terms = outputs.iter().enumerate();
            terms.map(|(u, o)| -wanted(u) * libm::log(libm::exp(*o) / sum)).sum()
        }
        Loss::BinaryCrossEntropy => mean(&|o, u| {
            let p = 1.0 / (1.0 + libm::exp(-o));
            -target(u) * libm::log(p) - (1.0 - target(u)) * libm::log(1.0 - p)
        }),
        Loss::Mse => mean(&|o, u| (o - target(u)) * (o - target(u))),
        Loss::Hinge => mean(&|o, u| (1.0 - sign(u) * o).max(0.0)),
        Loss::SquaredHinge => mean(&|o, u| {
            let gap = (1.0 - sign(u) * o).max(0.0);
            gap * gap
        }),
    }
}
