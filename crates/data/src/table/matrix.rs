//! Matrices of features, one row for each example: dense, or compressed sparse rows.
//!
//! Values are stored as they were encoded: a feature of 0 or 1 is exactly that in either precision.
//! Multiplies nothing; training does.

/// A number that matrices hold: `f32` or `f64`.
pub trait Value: Copy + PartialEq + Send + Sync + std::fmt::Debug + Into<f64> + 'static {
    const ZERO: Self;
    /// The nearest value.
    fn nearest(value: f64) -> Self;
}

impl Value for f32 {
    const ZERO: Self = 0.0;
    fn nearest(value: f64) -> Self {
        value as f32
    }
}

impl Value for f64 {
    const ZERO: Self = 0.0;
    fn nearest(value: f64) -> Self {
        value
    }
}

/// A matrix in either layout.
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix<T> {
    Dense(Dense<T>),
    /// The values that are not zero.
    Csr(Csr<T>),
}

/// Every value, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense<T> {
    pub width: usize,
    /// Rows · width values.
    pub values: Vec<T>,
}

/// The values that are not zero, row by row, columns ascending.
#[derive(Debug, Clone, PartialEq)]
pub struct Csr<T> {
    pub width: usize,
    /// Where each row starts in `columns` and `values`, and where the last ends.
    pub starts: Vec<usize>,
    /// Column of each value, from 0.
    pub columns: Vec<u32>,
    pub values: Vec<T>,
}

impl<T: Value> Matrix<T> {
    /// Rows.
    pub fn height(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.height(),
            Self::Csr(csr) => csr.height(),
        }
    }

    /// Features.
    pub fn width(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.width,
            Self::Csr(csr) => csr.width,
        }
    }

    /// The same values, all of them stored.
    pub fn into_dense(self) -> Dense<T> {
        match self {
            Self::Dense(dense) => dense,
            Self::Csr(csr) => csr.dense(),
        }
    }
}

impl<T: Value> Dense<T> {
    /// Rows; none without features.
    pub fn height(&self) -> usize {
        self.values.len().checked_div(self.width).unwrap_or(0)
    }

    pub fn row(&self, i: usize) -> &[T] {
        &self.values[i * self.width..(i + 1) * self.width]
    }
}

impl<T: Value> Csr<T> {
    /// A matrix without rows.
    pub fn empty(width: usize) -> Self {
        Self { width, starts: vec![0], columns: Vec::new(), values: Vec::new() }
    }

    /// Rows.
    pub fn height(&self) -> usize {
        self.starts.len() - 1
    }

    /// Columns and values of a row.
    pub fn row(&self, i: usize) -> (&[u32], &[T]) {
        let range = self.starts[i]..self.starts[i + 1];
        (&self.columns[range.clone()], &self.values[range])
    }

    /// Ends the row whose values were pushed.
    pub(super) fn end_row(&mut self) {
        self.starts.push(self.columns.len());
    }

    /// The same values, all of them stored.
    pub fn dense(&self) -> Dense<T> {
        let mut values = vec![T::ZERO; self.height() * self.width];
        for i in 0..self.height() {
            let (columns, entries) = self.row(i);
            for (column, value) in columns.iter().zip(entries) {
                values[i * self.width + *column as usize] = *value;
            }
        }
        Dense { width: self.width, values }
    }
}
