//! Scaling of stored values: one product and one sum for each value.

use crate::error::Error;
use planaria_recipe::sections::Normalize;

/// A checked `data.normalize` for examples of a given channel count.
///
/// Bytes become `(v/255 − mean)/std`, floats `(v − mean)/std`, each computed as `v·factor + offset`
/// with factor and offset rounded once, so that every machine gets the same bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    bytes: Line,
    floats: Line,
}

/// Factors and offsets of the values of an example, in turn; one pair if all channels are alike.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    factors: Vec<f32>,
    offsets: Vec<f32>,
}

/// Pixels whose factors are written out side by side, so that few channels fill vector registers.
const REPEAT: usize = 16;

impl Scale {
    /// Checks the setting against the number of channels. A single number serves all channels, and
    /// so it is kept when all channels are alike.
    pub fn new(normalize: &Normalize, channels: usize) -> Result<Self, Error> {
        let pick = |name: &str, list: &[f32]| match list.len() {
            1 => Ok(vec![list[0]]),
            n if n == channels => Ok(list.to_vec()),
            n => Err(Error::setting(format!(
                "`data.normalize.{name}` has {n} numbers, but the examples have {channels} channels"
            ))),
        };
        let mean = pick("mean", &normalize.mean)?;
        let std = pick("std", &normalize.std)?;
        if let Some(bad) = mean.iter().find(|m| !m.is_finite()) {
            return Err(Error::setting(format!("`data.normalize.mean` is {bad}")));
        }
        if let Some(bad) = std.iter().find(|s| !(s.is_finite() && **s > 0.0)) {
            return Err(Error::setting(format!(
                "`data.normalize.std` is {bad}, but must be above 0"
            )));
        }
        let count = mean.len().max(std.len());
        let at = |list: &[f32], i: usize| f64::from(list[if list.len() == 1 { 0 } else { i }]);
        let line = |unit: f64| {
            let pair = |i: usize| {
                let (m, s) = (at(&mean, i), at(&std, i));
                ((1.0 / (unit * s)) as f32, (-m / s) as f32)
            };
            let alike = (0..count).all(|i| pair(i) == pair(0));
            let length = if alike { 1 } else { count * REPEAT };
            let (factors, offsets) = (0..length).map(|i| pair(i % count)).unzip();
            Line { factors, offsets }
        };
        Ok(Self { bytes: line(255.0), floats: line(1.0) })
    }

    pub fn bytes(&self, from: &[u8], to: &mut [f32]) {
        self.bytes.apply(from, to);
    }

    /// Scales floats where they are.
    pub fn floats(&self, values: &mut [f32]) {
        self.floats.apply_in_place(values);
    }
}

impl Line {
    fn apply_in_place(&self, values: &mut [f32]) {
        if let ([factor], [offset]) = (&self.factors[..], &self.offsets[..]) {
            values.iter_mut().for_each(|v| *v = *v * factor + offset);
            return;
        }
        for values in values.chunks_mut(self.factors.len()) {
            let line = self.factors.iter().zip(&self.offsets);
            for (v, (factor, offset)) in values.iter_mut().zip(line) {
                *v = *v * factor + offset;
            }
        }
    }

    /// The loops are plain so that the compiler vectorises them.
    fn apply<T: Copy + Into<f32>>(&self, from: &[T], to: &mut [f32]) {
        if let ([factor], [offset]) = (&self.factors[..], &self.offsets[..]) {
            for (t, &f) in to.iter_mut().zip(from) {
                *t = f.into() * factor + offset;
            }
            return;
        }
        let length = self.factors.len();
        for (to, from) in to.chunks_mut(length).zip(from.chunks(length)) {
            let line = self.factors.iter().zip(&self.offsets);
            for ((t, &f), (factor, offset)) in to.iter_mut().zip(from).zip(line) {
                *t = f.into() * factor + offset;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalize(mean: &[f32], std: &[f32]) -> Normalize {
        Normalize { mean: mean.to_vec(), std: std.to_vec() }
    }

    #[test]
    fn bytes_and_floats_scale_by_channel() {
        let check = |mean: &[f32], std: &[f32], channels: usize| {
            let scale = Scale::new(&normalize(mean, std), channels).unwrap();
            let raw: Vec<u8> = (0..60).map(|i| (i * 37 % 256) as u8).collect();
            let floats: Vec<f32> = raw.iter().map(|&v| f32::from(v) / 100.0).collect();
            let (mut a, mut b) = (vec![0.0; 60], floats.clone());
            scale.bytes(&raw, &mut a);
            scale.floats(&mut b);
            for i in 0..60 {
                let m = mean[if mean.len() == 1 { 0 } else { i % channels }];
                let s = std[if std.len() == 1 { 0 } else { i % channels }];
                assert!((a[i] - (f32::from(raw[i]) / 255.0 - m) / s).abs() < 1e-5);
                assert!((b[i] - (floats[i] - m) / s).abs() < 1e-5);
            }
        };
        check(&[0.0], &[1.0], 1);
        check(&[0.5], &[0.25], 3);
        check(&[0.4, 0.5, 0.6], &[0.2, 0.3, 0.4], 3);
        check(&[0.4, 0.5, 0.6], &[0.3], 3);
        check(&[0.1, 0.2, 0.3, 0.4], &[1.0, 2.0, 3.0, 4.0], 4);
        check(&[0.1, 0.2], &[0.5], 2);
    }

    #[test]
    fn impossible_settings_are_refused() {
        let check = |mean: &[f32], std: &[f32], expect: &str| {
            let error = Scale::new(&normalize(mean, std), 3).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(&[0.0, 0.1], &[1.0], "`data.normalize.mean` has 2 numbers, but the examples have 3");
        check(&[0.0], &[1.0, 1.0], "`data.normalize.std` has 2 numbers");
        check(&[], &[1.0], "has 0 numbers");
        check(&[0.0], &[0.0], "std` is 0, but must be above 0");
        check(&[f32::NAN], &[1.0], "mean` is NaN");
        check(&[0.0], &[f32::NAN], "std` is NaN");
    }
}
