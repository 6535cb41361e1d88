//! How parameters follow their gradients.
//!
//! An optimizer keeps some slots of numbers, each as long as the parameters, and updates any range
//! of them on its own, so that owners of ranges need not meet. Plain multiplies and adds (never
//! fused), element by element: the same bits wherever they are vectorised.

use planaria_recipe::train::{Adam, Optimizer, Rmsprop, Sgd};

/// Most slots an optimizer keeps.
pub const SLOTS_MAX: usize = 2;

/// Slots of numbers an optimizer keeps per parameter.
pub fn slots(optimizer: &Optimizer) -> usize {
    match optimizer {
        Optimizer::Sgd(o) if o.momentum == 0.0 => 0,
        Optimizer::Sgd(_) => 1,
        Optimizer::Adam(_) | Optimizer::Adamw(_) => 2,
        Optimizer::Rmsprop(o) if o.momentum == 0.0 => 1,
        Optimizer::Rmsprop(_) => 2,
    }
}

/// One update of a range of parameters. `step` counts from 0; `slots` are the same range of the
/// optimizer's slots.
pub fn update(
    optimizer: &Optimizer,
    step: u64,
    learning_rate: f32,
    parameters: &mut [f32],
    gradients: &[f32],
    slots: &mut [&mut [f32]],
) {
    match (optimizer, slots) {
        (Optimizer::Sgd(o), []) => sgd(o, learning_rate, parameters, gradients),
        (Optimizer::Sgd(o), [v]) => momentum(o, learning_rate, parameters, gradients, v),
        (Optimizer::Adam(o), [m, v]) => {
            adam(o, step, learning_rate, o.weight_decay, parameters, gradients, m, v);
        }
        (Optimizer::Adamw(o), [m, v]) => {
            let keep = 1.0 - learning_rate * o.weight_decay;
            for p in parameters.iter_mut() {
                *p *= keep;
            }
            adam(o, step, learning_rate, 0.0, parameters, gradients, m, v);
        }
        (Optimizer::Rmsprop(o), [v]) => rmsprop(o, learning_rate, parameters, gradients, v, None),
        (Optimizer::Rmsprop(o), [v, b]) => {
            rmsprop(o, learning_rate, parameters, gradients, v, Some(b));
        }
        _ => unreachable!("`slots` says how many slots an optimizer has"),
    }
}

widest! {
    fn sgd(o: &Sgd, rate: f32, parameters: &mut [f32], gradients: &[f32]) {
        for (p, g) in parameters.iter_mut().zip(gradients) {
            let g = g + o.weight_decay * *p;
            *p -= rate * g;
        }
    }
}

widest! {
    /// v ← momentum · v + g; p ← p − rate · v (nesterov: p − rate · (g + momentum · v)).
    fn momentum(o: &Sgd, rate: f32, parameters: &mut [f32], gradients: &[f32], v: &mut [f32]) {
        for ((p, g), v) in parameters.iter_mut().zip(gradients).zip(v) {
            let g = g + o.weight_decay * *p;
            *v = o.momentum * *v + g;
            *p -= rate * if o.nesterov { g + o.momentum * *v } else { *v };
        }
    }
}

/// Kingma and Ba 2015, algorithm 1: bias-corrected means of the gradient and its square.
#[expect(clippy::too_many_arguments, reason = "constants, operands and two slots")]
fn adam(
    o: &Adam,
    step: u64,
    rate: f32,
    decay: f32,
    parameters: &mut [f32],
    gradients: &[f32],
    m: &mut [f32],
    v: &mut [f32],
) {
    let t = (step + 1) as f64;
    let corrected = |beta: f32| 1.0 - libm::pow(f64::from(beta), t);
    let rate = (f64::from(rate) / corrected(o.beta_1)) as f32;
    let root = (1.0 / corrected(o.beta_2).sqrt()) as f32;
    for (((p, g), m), v) in parameters.iter_mut().zip(gradients).zip(m).zip(v) {
        let g = g + decay * *p;
        *m = o.beta_1 * *m + (1.0 - o.beta_1) * g;
        *v = o.beta_2 * *v + (1.0 - o.beta_2) * (g * g);
        *p -= rate * *m / (v.sqrt() * root + o.epsilon);
    }
}

fn rmsprop(
    o: &Rmsprop,
    rate: f32,
    parameters: &mut [f32],
    gradients: &[f32],
    v: &mut [f32],
    buffer: Option<&mut [f32]>,
) {
    let scaled = |p: f32, g: f32, v: &mut f32| {
        let g = g + o.weight_decay * p;
        *v = o.rho * *v + (1.0 - o.rho) * (g * g);
        g / (v.sqrt() + o.epsilon)
    };
    match buffer {
        None => {
            for ((p, g), v) in parameters.iter_mut().zip(gradients).zip(v) {
                *p -= rate * scaled(*p, *g, v);
            }
        }
        Some(buffer) => {
            for (((p, g), v), b) in parameters.iter_mut().zip(gradients).zip(v).zip(buffer) {
                *b = o.momentum * *b + scaled(*p, *g, v);
                *p -= rate * *b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(optimizer: &Optimizer, steps: u64) -> f32 {
        // Minimise (p − 3)².
        let mut p = [0f32];
        let mut slots: Vec<[f32; 1]> = vec![[0.0]; slots(optimizer)];
        for step in 0..steps {
            let g = [2.0 * (p[0] - 3.0)];
            let mut views: Vec<&mut [f32]> = slots.iter_mut().map(|s| s.as_mut_slice()).collect();
            update(optimizer, step, 0.05, &mut p, &g, &mut views);
        }
        p[0]
    }

    #[test]
    fn every_optimizer_finds_the_minimum() {
        let sgd = |momentum, nesterov| Optimizer::Sgd(Sgd { momentum, nesterov, ..Sgd::default() });
        for optimizer in [
            sgd(0.0, false),
            sgd(0.9, false),
            sgd(0.9, true),
            Optimizer::Adam(Adam::default()),
            Optimizer::Adamw(Adam::default()),
            Optimizer::Rmsprop(Rmsprop::default()),
            Optimizer::Rmsprop(Rmsprop { momentum: 0.5, ..Rmsprop::default() }),
        ] {
            let p = run(&optimizer, 600);
            assert!((p - 3.0).abs() < 0.06, "{optimizer:?} ended at {p}");
        }
    }

    #[test]
    fn ranges_may_be_updated_apart() {
        let optimizer = Optimizer::Adam(Adam { weight_decay: 0.1, ..Adam::default() });
        let start: Vec<f32> = (0..100).map(|i| i as f32 * 0.01).collect();
        let g: Vec<f32> = (0..100).map(|i| 1.0 - i as f32 * 0.03).collect();
        let mut whole = (start.clone(), vec![0.0; 100], vec![0.0; 100]);
        let mut parts = whole.clone();
        update(&optimizer, 4, 0.1, &mut whole.0, &g, &mut [&mut whole.1, &mut whole.2]);
        for r in [0..37, 37..100] {
            update(
                &optimizer,
                4,
                0.1,
                &mut parts.0[r.clone()],
                &g[r.clone()],
                &mut [&mut parts.1[r.clone()], &mut parts.2[r.clone()]],
            );
        }
        assert_eq!(whole, parts);
    }
}
