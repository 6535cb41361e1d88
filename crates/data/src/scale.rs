//! Scaling of stored values: one product and one sum for each value.

use crate::error::Error;
use planaria_recipe::sections::Normalize;

/// A checked `data.normalize` for examples of a given channel count.
///
/// Bytes become `(v/255 − mean)/std`, floats `(v − mean)/std`, each computed as `v·factor + offset`
/// with factor and offset rounded once, so that every machine gets the same bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    bytes: Vec<(f32, f32)>,
    floats: Vec<(f32, f32)>,
}

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
            let mut line: Vec<_> = (0..count)
                .map(|i| {
                    let (m, s) = (at(&mean, i), at(&std, i));
                    ((1.0 / (unit * s)) as f32, (-m / s) as f32)
                })
                .collect();
            if line.iter().all(|pair| *pair == line[0]) {
                line.truncate(1);
            }
            line
        };
        Ok(Self { bytes: line(255.0), floats: line(1.0) })
    }

    /// Scales bytes.
    pub fn bytes(&self, from: &[u8], to: &mut [f32]) {
        apply(&self.bytes, from, to);
    }

    /// Scales floats.
    pub fn floats(&self, from: &[f32], to: &mut [f32]) {
        apply(&self.floats, from, to);
    }
}

/// The loops are plain so that the compiler vectorises them.
fn apply<T: Copy + Into<f32>>(line: &[(f32, f32)], from: &[T], to: &mut [f32]) {
    match *line {
        [(factor, offset)] => {
            for (t, &f) in to.iter_mut().zip(from) {
                *t = f.into() * factor + offset;
            }
        }
        [r, g, b] => {
            for (t, f) in to.chunks_exact_mut(3).zip(from.chunks_exact(3)) {
                t[0] = f[0].into() * r.0 + r.1;
                t[1] = f[1].into() * g.0 + g.1;
                t[2] = f[2].into() * b.0 + b.1;
            }
        }
        _ => {
            for (t, f) in to.chunks_mut(line.len()).zip(from.chunks(line.len())) {
                for ((t, &f), &(factor, offset)) in t.iter_mut().zip(f).zip(line) {
                    *t = f.into() * factor + offset;
                }
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
            let (mut a, mut b) = (vec![0.0; 60], vec![0.0; 60]);
            scale.bytes(&raw, &mut a);
            scale.floats(&floats, &mut b);
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
