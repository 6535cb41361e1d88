//! Both products on rows that are not coded: the reference that coded runs are compared with.
//!
//! The same kernels in the same numbers; product 2 is one chain over the rows of a step, ascending.
//! Holds all rows, dense, or asks for them again in every step. Never steps weights.

use super::number::{Bounds, Number};
use super::{Batches, Model, Outcome, Target};
use crate::Error;
use planaria_numerics::coding::blocks::Rows;
use planaria_numerics::coding::exact::{DataScale, Residue};
use planaria_numerics::coding::{self, product};
use planaria_recipe::train::LinearPrecision;
use std::borrow::Cow;
use std::ops::Range;

/// Rows that are multiplied at a time.
const ROWS_AT_ONCE: usize = 1024;

/// All rows, in the numbers of a precision.
#[derive(Debug)]
pub enum Plain {
    F32(Data<f32>),
    F64(Data<f64>),
    Exact(Data<Residue>),
}

/// What a step of the reference gives: what [`super::Weights::step`] takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Summed {
    pub sums: Vec<f64>,
    /// What came of the rows.
    pub outcome: Outcome,
}

/// Why a step of the reference could not be computed.
#[derive(Debug)]
pub enum Fault {
    Coding(coding::Error),
    /// Rows that are not kept could not be read again.
    Unread,
}

impl From<coding::Error> for Fault {
    fn from(error: coding::Error) -> Self {
        Self::Coding(error)
    }
}

/// Features of some rows, as they were pushed; nothing where they cannot be read.
pub type Read<'a> = &'a mut dyn FnMut(Range<usize>) -> Option<Vec<f32>>;

impl Plain {
    /// Without rows yet; rows are pushed in their order. They are kept in memory, or read again in
    /// every step.
    pub fn new(model: &Model, precision: LinearPrecision, scale: DataScale, is_kept: bool) -> Self {
        match precision {
            LinearPrecision::F32 => Self::F32(Data::new(model, scale, is_kept)),
            LinearPrecision::F64 => Self::F64(Data::new(model, scale, is_kept)),
            LinearPrecision::Exact => Self::Exact(Data::new(model, scale, is_kept)),
        }
    }

    /// The next rows of features, and their targets.
    pub fn push(&mut self, features: &[f32], targets: &[Target]) -> Result<(), coding::Error> {
        match self {
            Self::F32(data) => data.push(features, targets),
            Self::F64(data) => data.push(features, targets),
            Self::Exact(data) => data.push(features, targets),
        }
    }

    /// Both products of a batch; `read` is asked for rows that are not kept.
    pub fn sum(
        &self,
        model: &Model,
        weights: &[f64],
        batches: &Batches,
        batch: usize,
        read: Read<'_>,
    ) -> Result<Summed, Fault> {
        let rows = batches.rows(batch);
        match self {
            Self::F32(data) => data.sum(model, weights, &rows, read),
            Self::F64(data) => data.sum(model, weights, &rows, read),
            Self::Exact(data) => data.sum(model, weights, &rows, read),
        }
    }

    /// Rows there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(data) => data.targets.len(),
            Self::F64(data) => data.targets.len(),
            Self::Exact(data) => data.targets.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Rows in one kind of number.
#[derive(Debug)]
pub struct Data<E> {
    features: usize,
    width: usize,
    scale: DataScale,
    is_kept: bool,
    /// All rows, if they are kept.
    rows: Vec<E>,
    targets: Vec<Target>,
    bounds: Bounds,
}

impl<E: Number> Data<E> {
    fn new(model: &Model, scale: DataScale, is_kept: bool) -> Self {
        let width = model.width();
        let bounds = Bounds::new(width);
        let (rows, targets) = (Vec::new(), Vec::new());
        Self { features: model.features, width, scale, is_kept, rows, targets, bounds }
    }

    fn push(&mut self, features: &[f32], targets: &[Target]) -> Result<(), coding::Error> {
        let rows = self.numbers(features)?;
        E::bound(&mut self.bounds, &Rows::Dense { width: self.width, values: &rows })?;
        if self.is_kept {
            self.rows.extend(rows);
        }
        self.targets.extend_from_slice(targets);
        Ok(())
    }

    fn numbers(&self, features: &[f32]) -> Result<Vec<E>, coding::Error> {
        let wide = with_ones(self.features, self.width, features);
        E::data(self.scale, self.width, &wide)
    }

    fn sum(
        &self,
        model: &Model,
        weights: &[f64],
        ranges: &[Range<usize>],
        read: Read<'_>,
    ) -> Result<Summed, Fault> {
        let columns = model.columns();
        let fixed = E::weights(self.width, weights)?;
        E::check_weights(&self.bounds, &fixed)?;
        let mut outcome = Outcome::default();
        let mut slopes = Vec::new();
        for range in pieces(ranges) {
            let mut products = vec![E::default(); range.len() * columns];
            product::rows_times(self.width, &self.rows(&range, read)?, &fixed, &mut products);
            let mut wide = vec![0.0; products.len()];
            E::products(self.scale, &products, &mut wide);
            outcome += model.judge(&mut wide, &self.targets[range]);
            slopes.extend(E::slopes(columns, &wide)?);
        }
        E::check_slopes(&self.bounds, columns, &slopes)?;
        let mut sums = vec![E::default(); fixed.len()];
        let mut at = 0;
        for range in pieces(ranges) {
            let entries = &slopes[at * columns..(at + range.len()) * columns];
            let rows = self.rows(&range, read)?;
            product::add_rows_scaled(self.width, &rows, entries, &mut sums);
            at += range.len();
        }
        let mut wide = vec![0.0; sums.len()];
        E::sums(self.scale, &sums, &mut wide);
        Ok(Summed { sums: wide, outcome })
    }

    fn rows(&self, rows: &Range<usize>, read: Read<'_>) -> Result<Cow<'_, [E]>, Fault> {
        if self.is_kept {
            return Ok(Cow::Borrowed(&self.rows[rows.start * self.width..rows.end * self.width]));
        }
        let features = read(rows.clone()).ok_or(Fault::Unread)?;
        Ok(Cow::Owned(self.numbers(&features)?))
    }
}

/// Ranges cut into pieces that stay in the cache.
fn pieces(ranges: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    ranges.iter().flat_map(|range| {
        let end = range.end;
        range.clone().step_by(ROWS_AT_ONCE).map(move |at| at..(at + ROWS_AT_ONCE).min(end))
    })
}

/// Rows of features with the column of ones, where there is one.
pub fn with_ones(features: usize, width: usize, rows: &[f32]) -> Vec<f32> {
    if width == features {
        return rows.to_vec();
    }
    let mut wide = Vec::with_capacity(rows.len() / features.max(1) * width);
    for row in rows.chunks_exact(features.max(1)) {
        wide.extend_from_slice(row);
        wide.push(1.0);
    }
    wide
}

/// What features are multiplied by in exact arithmetic: what the recipe says, or 1 where all are
/// whole numbers. The error names the column of one that is not.
pub fn data_scale(given: Option<u32>, whole: Result<(), usize>) -> Result<DataScale, usize> {
    match (given, whole) {
        (Some(scale), _) => Ok(DataScale(scale)),
        (None, Ok(())) => Ok(DataScale(1)),
        (None, Err(column)) => Err(column),
    }
}

/// Features are read in single precision, in which larger whole numbers are rounded.
const WHOLE_MAX: f32 = (1 << 24) as f32;

/// Whether some rows hold whole numbers alone that reading has not rounded; else the column of the
/// first that is not.
pub fn whole(features: usize, rows: &[f32]) -> Result<(), usize> {
    match rows.iter().position(|v| v.fract() != 0.0 || v.abs() >= WHOLE_MAX) {
        Some(at) => Err(at % features.max(1)),
        None => Ok(()),
    }
}

/// Products of rows of features with weights in f64, as evaluation takes them.
pub fn outputs(model: &Model, weights: &[f64], features: &[f32]) -> Vec<f64> {
    let wide = with_ones(model.features, model.width(), features);
    let rows: Vec<f64> = wide.iter().map(|v| f64::from(*v)).collect();
    let mut out = vec![0.0; rows.len() / model.width().max(1) * model.columns()];
    product::rows_times(model.width(), &rows, weights, &mut out);
    out
}

/// An error of coded arithmetic with the names of features in it.
pub fn named(error: &coding::Error, names: &[String]) -> Error {
    let column = match error {
        coding::Error::Range { column, .. } | coding::Error::Value { column, .. } => *column,
        other => return Error::Shape(other.to_string()),
    };
    let name = names.get(column).map_or_else(|| "the bias".to_owned(), |name| format!("`{name}`"));
    Error::Shape(format!("{error} (column {column} is {name})"))
}
