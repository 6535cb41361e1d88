//! The three precisions as the tests use them: floats in and out.

use planaria_numerics::{
    coding::{
        Precision,
        exact::{self, DataScale, Residue},
        generator::Generator,
        group::Judge,
        scalar::Element,
    },
    random::{Purpose, Stream},
};

/// Test data are multiples of 1/256, so that all precisions hold the same.
pub const SCALE: DataScale = DataScale(256);

pub trait Numbers: Element<Scalar: Judge> {
    const PRECISION: Precision;
    fn generator(threshold: usize, machines: usize) -> Generator<Self::Scalar>;
    fn data(width: usize, values: &[f64]) -> Vec<Self>;
    fn weights(width: usize, values: &[f64]) -> Vec<Self>;
    fn slopes(columns: usize, values: &[f64]) -> Vec<Self>;
    fn products(values: &[Self]) -> Vec<f64>;
    fn gradients(values: &[Self]) -> Vec<f64>;
    /// Weights as they are kept between iterations.
    fn kept(value: f64) -> f64;
}

macro_rules! float {
    ($float:ty, $precision:expr) => {
        impl Numbers for $float {
            const PRECISION: Precision = $precision;

            fn generator(threshold: usize, machines: usize) -> Generator<f64> {
                Generator::stored(threshold, machines).expect("sizes of a code")
            }

            fn data(_: usize, values: &[f64]) -> Vec<Self> {
                values.iter().map(|v| *v as $float).collect()
            }

            fn weights(_: usize, values: &[f64]) -> Vec<Self> {
                values.iter().map(|v| *v as $float).collect()
            }

            fn slopes(_: usize, values: &[f64]) -> Vec<Self> {
                values.iter().map(|v| *v as $float).collect()
            }

            fn products(values: &[Self]) -> Vec<f64> {
                values.iter().map(|v| f64::from(*v)).collect()
            }

            fn gradients(values: &[Self]) -> Vec<f64> {
                values.iter().map(|v| f64::from(*v)).collect()
            }

            fn kept(value: f64) -> f64 {
                f64::from(value as $float)
            }
        }
    };
}

float!(f32, Precision::F32);
float!(f64, Precision::F64);

impl Numbers for Residue {
    const PRECISION: Precision = Precision::Exact;

    fn generator(threshold: usize, machines: usize) -> Generator<Residue> {
        Generator::cauchy(threshold, machines).expect("sizes of a code")
    }

    fn data(width: usize, values: &[f64]) -> Vec<Self> {
        SCALE.to_fixed(width, values).expect("small values")
    }

    fn weights(width: usize, values: &[f64]) -> Vec<Self> {
        exact::weights_to_fixed(width, values).expect("small values")
    }

    fn slopes(columns: usize, values: &[f64]) -> Vec<Self> {
        exact::slopes_to_fixed(columns, values).expect("small values")
    }

    fn products(values: &[Self]) -> Vec<f64> {
        let mut out = vec![0.0; values.len()];
        exact::products_to_f64(SCALE, values, &mut out);
        out
    }

    fn gradients(values: &[Self]) -> Vec<f64> {
        let mut out = vec![0.0; values.len()];
        exact::gradients_to_f64(SCALE, values, &mut out);
        out
    }

    fn kept(value: f64) -> f64 {
        value
    }
}

pub fn stream(a: usize, b: usize) -> Stream {
    Stream::new(77, Purpose::Test, a as u64, b as u64)
}

/// Normal values, in multiples of 1/256.
pub fn normal(draws: &mut Stream, count: usize) -> Vec<f64> {
    (0..count).map(|_| (f64::from(draws.normal()) * 256.0).round() / 256.0).collect()
}

pub fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |largest, v| v.abs().max(largest))
}

/// Largest difference, relative to the largest value expected.
pub fn off(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let difference: Vec<f64> = found.iter().zip(expected).map(|(a, b)| a - b).collect();
    largest(&difference) / largest(expected).max(f64::MIN_POSITIVE)
}
