//! Winograd's minimal filtering for 3×3 convolutions of stride 1 (Lavin and Gray, "Fast algorithms
//! for convolutional neural networks", CVPR 2016).
//!
//! The image is cut into tiles; tiles and weights are transformed, multiplied element by element,
//! summed over channels and transformed back. [`convolve`] makes 4×4 outputs per tile with 36
//! products where the direct way takes 144; [`weight_gradient`] takes 2×2 gradients per tile with 16
//! where the direct way takes 36 (larger tiles would lose too many bits there).
//!
//! Tiles are handled in groups of at most 64 in raster order. Transformed tiles lie in planes
//! `[tile][channel]`, one per element, each a cache line longer than needed, because planes a power
//! of two apart would share cache sets. Channels are multiples of 16.

mod convolution;
mod weights;

pub use convolution::{convolve, transform_weights};
pub use weights::{finish_weight_gradient, weight_gradient};

use super::simd::LANES;

/// Tiles per group. Part of the order of additions of weight gradients.
pub const GROUP: usize = 64;
/// Elements of a transformed tile of [`convolve`].
pub const CONVOLUTION_ELEMENTS: usize = 36;
/// Elements of a transformed tile of [`weight_gradient`].
pub const WEIGHT_ELEMENTS: usize = 16;

/// Length of one plane of transformed tiles.
pub const fn plane(channels: usize) -> usize {
    GROUP * channels + LANES
}

/// Where output tiles lie on an image of `height` × `width`.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    pub height: usize,
    pub width: usize,
    /// Rows of zeros above the input.
    pub pad_top: usize,
    /// Columns of zeros left of the input.
    pub pad_left: usize,
    pub out_h: usize,
    pub out_w: usize,
}

impl Grid {
    /// Tiles of `size` × `size` outputs side by side.
    fn across(&self, size: usize) -> usize {
        self.out_w.div_ceil(size)
    }

    fn tiles(&self, size: usize) -> usize {
        self.out_h.div_ceil(size) * self.across(size)
    }

    /// First input pixel of the tile at (ty, tx).
    fn corner(&self, size: usize, (ty, tx): (usize, usize)) -> (isize, isize) {
        (
            (size * ty) as isize - self.pad_top as isize,
            (size * tx) as isize - self.pad_left as isize,
        )
    }

    /// Whether input row `y` (or column `x`) exists.
    fn has_row(&self, y: isize) -> bool {
        y >= 0 && y < self.height as isize
    }

    fn has_column(&self, x: isize) -> bool {
        x >= 0 && x < self.width as isize
    }
}

/// What is done to outputs: bias and another tensor added, negatives cut.
#[derive(Clone, Copy)]
pub struct Epilogue {
    /// One value per output channel, or null.
    pub bias: *const f32,
    /// A tensor laid out like the output, or null.
    pub plus: *const f32,
    /// Whether negative outputs become zero.
    pub relu: bool,
}

/// A convolution of one image.
#[derive(Clone, Copy)]
pub struct Winograd {
    /// Where the tiles lie.
    pub grid: Grid,
    pub input_channels: usize,
    pub output_channels: usize,
    /// Scratch for transformed inputs: a plane per element.
    pub v: *mut f32,
    /// Scratch for transformed outputs: a plane per element.
    pub m: *mut f32,
}
