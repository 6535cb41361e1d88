//! The numbers that products are computed in, and the way there and back.
//!
//! Features come as f32 (as every source gives them), weights and slopes as f64. In fixed point
//! every conversion is checked, and a value that does not fit is refused by its column. Never
//! multiplies.

use planaria_numerics::coding::exact::{
    Columns, DataScale, Residue, gradients_to_f64, products_to_f64, slopes_to_fixed,
    weights_to_fixed,
};
use planaria_numerics::coding::group::Judge;
use planaria_numerics::coding::scalar::Element;
use planaria_numerics::coding::{Error, blocks::Rows};
use serde::{Deserialize, Serialize};

/// A number that products are computed in: f32, f64 or a residue.
pub trait Number: Element<Scalar: Judge> {
    /// Features of `width` columns (the column of ones among them).
    fn data(scale: DataScale, width: usize, features: &[f32]) -> Result<Vec<Self>, Error>;
    /// Weights for product 1.
    fn weights(width: usize, weights: &[f64]) -> Result<Vec<Self>, Error>;
    /// Decoded products 1.
    fn products(scale: DataScale, products: &[Self], out: &mut [f64]);
    /// Slopes for product 2; `columns` of them for each row.
    fn slopes(columns: usize, slopes: &[f64]) -> Result<Vec<Self>, Error>;
    /// Sums of product 2.
    fn sums(scale: DataScale, sums: &[Self], out: &mut [f64]);
    /// Adds rows to the bounds that products are checked by.
    fn bound(bounds: &mut Bounds, rows: &Rows<'_, Self>) -> Result<(), Error>;
    /// An error where product 1 could leave the range of the numbers.
    fn check_weights(bounds: &Bounds, weights: &[Self]) -> Result<(), Error>;
    /// An error where product 2 could leave the range of the numbers; `slopes` of all rows.
    fn check_slopes(bounds: &Bounds, columns: usize, slopes: &[Self]) -> Result<(), Error>;
}

/// What bounds products; floats have none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bounds(Columns);

impl Bounds {
    /// Of data of `width` columns, none of which was seen yet.
    pub fn new(width: usize) -> Self {
        Self(Columns::new(width))
    }

    /// The bounds of each column, to merge or check parts of them.
    pub fn columns(&self) -> &Columns {
        &self.0
    }
}

macro_rules! float {
    ($float:ty) => {
        impl Number for $float {
            fn data(_: DataScale, _: usize, features: &[f32]) -> Result<Vec<Self>, Error> {
                Ok(features.iter().map(|v| <$float>::from(*v)).collect())
            }

            fn weights(_: usize, weights: &[f64]) -> Result<Vec<Self>, Error> {
                Ok(weights.iter().map(|v| *v as $float).collect())
            }

            fn products(_: DataScale, products: &[Self], out: &mut [f64]) {
                out.iter_mut().zip(products).for_each(|(out, v)| *out = f64::from(*v));
            }

            fn slopes(_: usize, slopes: &[f64]) -> Result<Vec<Self>, Error> {
                Ok(slopes.iter().map(|v| *v as $float).collect())
            }

            fn sums(_: DataScale, sums: &[Self], out: &mut [f64]) {
                out.iter_mut().zip(sums).for_each(|(out, v)| *out = f64::from(*v));
            }

            fn bound(_: &mut Bounds, _: &Rows<'_, Self>) -> Result<(), Error> {
                Ok(())
            }

            fn check_weights(_: &Bounds, _: &[Self]) -> Result<(), Error> {
                Ok(())
            }

            fn check_slopes(_: &Bounds, _: usize, _: &[Self]) -> Result<(), Error> {
                Ok(())
            }
        }
    };
}

float!(f32);
float!(f64);

impl Number for Residue {
    fn data(scale: DataScale, width: usize, features: &[f32]) -> Result<Vec<Self>, Error> {
        let wide: Vec<f64> = features.iter().map(|v| f64::from(*v)).collect();
        scale.to_fixed(width, &wide)
    }

    fn weights(width: usize, weights: &[f64]) -> Result<Vec<Self>, Error> {
        weights_to_fixed(width, weights)
    }

    fn products(scale: DataScale, products: &[Self], out: &mut [f64]) {
        products_to_f64(scale, products, out);
    }

    fn slopes(columns: usize, slopes: &[f64]) -> Result<Vec<Self>, Error> {
        slopes_to_fixed(columns, slopes)
    }

    fn sums(scale: DataScale, sums: &[Self], out: &mut [f64]) {
        gradients_to_f64(scale, sums, out);
    }

    fn bound(bounds: &mut Bounds, rows: &Rows<'_, Self>) -> Result<(), Error> {
        bounds.0.push(rows)
    }

    fn check_weights(bounds: &Bounds, weights: &[Self]) -> Result<(), Error> {
        bounds.0.check_weights(weights)
    }

    fn check_slopes(bounds: &Bounds, columns: usize, slopes: &[Self]) -> Result<(), Error> {
        bounds.0.check_slopes(columns, slopes)
    }
}
