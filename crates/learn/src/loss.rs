//! Losses: of one example's outputs, with the gradient. All are summed over examples and divided
//! once per step.

use planaria_recipe::train::Loss;

/// Targets of some examples.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// One class per example.
    Classes(&'a [u32]),
    /// As many values per example as there are outputs.
    Values(&'a [f32]),
}

impl<'a> Targets<'a> {
    /// Targets of examples `from..to` of outputs with `units` values.
    pub fn part(self, from: usize, to: usize, units: usize) -> Self {
        match self {
            Self::Classes(c) => Self::Classes(&c[from..to]),
            Self::Values(v) => Self::Values(&v[from * units..to * units]),
        }
    }

    fn of(self, example: usize, units: usize) -> Target<'a> {
        match self {
            Self::Classes(c) => Target::Class(c[example]),
            Self::Values(v) => Target::Values(&v[example * units..][..units]),
        }
    }
}

#[derive(Clone, Copy)]
enum Target<'a> {
    Class(u32),
    Values(&'a [f32]),
}

impl Target<'_> {
    /// What output `unit` of `units` should be: one-hot, or the number itself for a single output.
    fn value(&self, unit: usize, units: usize) -> f32 {
        match self {
            Self::Class(c) if units == 1 => *c as f32,
            Self::Class(c) => f32::from(u8::from(*c as usize == unit)),
            Self::Values(v) => v[unit],
        }
    }

    /// The same as a sign, for hinges.
    fn sign(&self, unit: usize, units: usize) -> f32 {
        if self.value(unit, units) > 0.5 { 1.0 } else { -1.0 }
    }
}

/// A loss and its constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Objective {
    pub loss: Loss,
    /// Share of a class' target spread over all classes.
    pub label_smoothing: f32,
}

impl Objective {
    /// Sum of the losses of some examples, in their order. `scratch` has room for one example's
    /// outputs.
    pub fn sum(&self, outputs: &[f32], targets: Targets<'_>, scratch: &mut [f32]) -> f64 {
        let rows = outputs.chunks_exact(scratch.len()).enumerate();
        rows.fold(0.0, |sum, (example, row)| sum + self.evaluate(row, targets, example, scratch))
    }

    /// Loss of example number `example`; the gradient by each output goes to `gradient`.
    pub fn evaluate(
        &self,
        outputs: &[f32],
        targets: Targets<'_>,
        example: usize,
        gradient: &mut [f32],
    ) -> f64 {
        let units = outputs.len();
        let target = targets.of(example, units);
        match self.loss {
            Loss::CrossEntropy => self.cross_entropy(outputs, target, gradient),
            Loss::BinaryCrossEntropy => mean_over(units, gradient, |u| {
                let (f, y) = (outputs[u], target.value(u, units));
                // log(1 + e^f) − y·f, without overflow
                let loss = f.max(0.0) - f * y + libm::log1pf(libm::expf(-f.abs()));
                (loss, sigmoid(f) - y)
            }),
            Loss::Mse => mean_over(units, gradient, |u| {
                let d = outputs[u] - target.value(u, units);
                (d * d, 2.0 * d)
            }),
            Loss::Hinge => mean_over(units, gradient, |u| {
                let y = target.sign(u, units);
                let gap = 1.0 - y * outputs[u];
                if gap > 0.0 { (gap, -y) } else { (0.0, 0.0) }
            }),
            Loss::SquaredHinge => mean_over(units, gradient, |u| {
                let y = target.sign(u, units);
                let gap = 1.0 - y * outputs[u];
                if gap > 0.0 { (gap * gap, -2.0 * y * gap) } else { (0.0, 0.0) }
            }),
        }
    }

    fn cross_entropy(&self, outputs: &[f32], target: Target<'_>, gradient: &mut [f32]) -> f64 {
        let units = outputs.len();
        let (top, sum) = softmax(outputs, gradient);
        let log_sum = libm::logf(sum) + top;
        let spread = self.label_smoothing / units as f32;
        let mut loss = 0f64;
        for (u, g) in gradient.iter_mut().enumerate() {
            let y = target.value(u, units.max(2)) * (1.0 - self.label_smoothing) + spread;
            if y != 0.0 {
                loss += f64::from(y) * f64::from(log_sum - outputs[u]);
            }
            *g -= y;
        }
        loss
    }

    /// Whether the outputs say what the target says; `None` where there is no right or wrong.
    pub fn is_correct(
        &self,
        outputs: &[f32],
        targets: Targets<'_>,
        example: usize,
    ) -> Option<bool> {
        let Targets::Classes(classes) = targets else { return None };
        self.class(outputs).map(|c| c == classes[example])
    }

    /// The class that outputs speak for; `None` for regression.
    pub fn class(&self, outputs: &[f32]) -> Option<u32> {
        match (outputs, self.loss) {
            ([_], Loss::Mse) => None,
            // A single output is a logit or a margin.
            ([f], _) => Some(u32::from(*f > 0.0)),
            _ => {
                let mut best = 0;
                for (i, v) in outputs.iter().enumerate() {
                    if *v > outputs[best] {
                        best = i;
                    }
                }
                Some(best as u32)
            }
        }
    }
}

/// Mean of (loss, gradient) over the outputs.
fn mean_over(units: usize, gradient: &mut [f32], f: impl Fn(usize) -> (f32, f32)) -> f64 {
    let share = 1.0 / units as f32;
    let mut sum = 0f64;
    for (u, g) in gradient.iter_mut().enumerate() {
        let (loss, slope) = f(u);
        sum += f64::from(loss);
        *g = slope * share;
    }
    sum / units as f64
}

/// 1/(1+e⁻ˣ) without overflow.
pub(crate) fn sigmoid(x: f32) -> f32 {
    if x >= 0.0 {
        1.0 / (1.0 + libm::expf(-x))
    } else {
        let e = libm::expf(x);
        e / (1.0 + e)
    }
}

/// Exponentials of x, scaled to sum to one. Returns the largest x, and what the exponentials of the
/// distances from it summed to.
pub(crate) fn softmax(x: &[f32], y: &mut [f32]) -> (f32, f32) {
    let top = x.iter().fold(f32::NEG_INFINITY, |m, v| if *v > m { *v } else { m });
    let mut sum = 0f32;
    for (y, x) in y.iter_mut().zip(x) {
        *y = libm::expf(x - top);
        sum += *y;
    }
    for y in y.iter_mut() {
        *y /= sum;
    }
    (top, sum)
}
