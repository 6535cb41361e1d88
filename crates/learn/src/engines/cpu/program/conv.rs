//! How one convolution is computed: the method, its packed weights and its padded images.

use crate::engines::cpu::kernels::direct::{self, pack_len};
use crate::engines::cpu::kernels::pooled;
use crate::engines::cpu::kernels::simd::{Isa, LANES};
use crate::engines::cpu::kernels::winograd::{self, Grid};
use crate::network::{Node, Op};
use planaria_recipe::Shape;
use planaria_recipe::shape::Window;
use std::ops::Range;

/// A convolution, planned.
#[derive(Debug, Clone)]
pub struct Conv {
    /// Weights in the parameters: `[rows][columns][depth][filters]`.
    pub kernel: Range<usize>,
    /// Bias in the parameters.
    pub bias: Option<Range<usize>>,
    /// How the kernel slides.
    pub window: Window,
    pub groups: usize,
    /// Input rows, columns and channels.
    pub input: [usize; 3],
    pub filters: usize,
    /// How it is computed.
    pub method: Method,
    /// Packed weights of the forward pass.
    pub forward: Range<usize>,
    /// Whether its input gradient is wanted.
    pub wants_input: bool,
    /// Packed weights of the input gradient.
    pub backward: Range<usize>,
    /// Parts of the input gradient (direct method).
    pub classes: Vec<Class>,
    /// Whether its gradient comes straight from the 2×2 max pool above it.
    pub pooled: bool,
}

/// How a convolution is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Winograd,
    /// One filter per channel.
    Depthwise,
    /// Sums over the kernel's taps.
    Direct,
}

/// Input pixels whose windows meet the same kernel taps: with stride s, every s-th row and column.
/// Their gradient is a stride-1 convolution of the output gradient with those taps, flipped.
#[derive(Debug, Clone, Copy)]
pub struct Class {
    /// Rows of the input gradient.
    pub y: Axis,
    /// Columns of the input gradient.
    pub x: Axis,
}

/// One axis of a class.
#[derive(Debug, Clone, Copy)]
pub struct Axis {
    pub first: usize,
    /// Number of pixels, a stride apart.
    pub count: usize,
    /// First output that the first pixel meets, counted from the padded gradient's edge.
    pub from: usize,
    /// First tap; the others are a stride apart.
    pub tap: usize,
    pub taps: usize,
}

impl Conv {
    /// Plans node's convolution of an `input` image; packs go behind `packed` in the buffer.
    pub fn plan(node: &Node, input: Shape, wants_input: bool, packed: &mut usize) -> Option<Self> {
        let Op::Conv { kernel, bias, window, groups } = &node.op else { return None };
        let Shape::Image { height, width, channels } = input else { return None };
        let filters = node.shape.channels();
        let mut conv = Self {
            kernel: kernel.clone(),
            bias: bias.clone(),
            window: *window,
            groups: *groups,
            input: [height, width, channels],
            filters,
            method: choose(window, *groups, channels, filters),
            forward: 0..0,
            wants_input,
            backward: 0..0,
            classes: vec![],
            pooled: false,
        };
        if conv.method == Method::Direct && wants_input {
            conv.classes = conv.plan_classes();
        }
        let mut take = |len: usize| {
            let start = *packed;
            *packed += len.next_multiple_of(LANES);
            start..start + len
        };
        conv.forward = take(conv.forward_len());
        if wants_input {
            conv.backward = take(conv.backward_len());
        }
        Some(conv)
    }

    /// Input channels per group.
    pub fn depth(&self) -> usize {
        self.input[2] / self.groups
    }
    /// Output channels per group.
    pub fn width_out(&self) -> usize {
        self.filters / self.groups
    }

    /// Rows and columns of the padded input.
    pub fn padded(&self) -> (usize, usize) {
        let w = &self.window;
        (self.input[0] + w.pad_top + w.pad_bottom, self.input[1] + w.pad_left + w.pad_right)
    }

    /// Length of the padded copy of the input; 0 when the input serves as it is.
    pub fn padded_len(&self) -> usize {
        let (h, w) = self.padded();
        let bare = (h, w) == (self.input[0], self.input[1]);
        match self.method {
            Method::Winograd => 0,
            Method::Depthwise => h * w * self.input[2],
            Method::Direct if bare && self.groups == 1 => 0,
            Method::Direct => h * w * self.depth(),
        }
    }

    /// Rows above, columns left, and size of the padded output gradient.
    pub fn padded_gradient(&self) -> [usize; 4] {
        let w = &self.window;
        let axis = |kernel: usize, stride: usize, size: usize, pad: usize, out: usize| {
            let before = kernel.div_ceil(stride) - 1;
            let after = ((size - 1 + pad) / stride + 1).saturating_sub(out);
            (before, before + out + after)
        };
        let (top, h) = axis(w.kernel_h, w.stride_h, self.input[0], w.pad_top, w.out_h);
        let (left, wide) = axis(w.kernel_w, w.stride_w, self.input[1], w.pad_left, w.out_w);
        [top, left, h, wide]
    }

    /// Length of the padded copy of the output gradient.
    pub fn padded_gradient_len(&self) -> usize {
        let [_, _, h, w] = self.padded_gradient();
        match self.method {
            Method::Direct if self.wants_input => h * w * self.width_out(),
            Method::Depthwise if self.wants_input => self.padded_len(),
            _ => 0,
        }
    }

    /// Tiles of the forward pass.
    pub fn grid(&self) -> Grid {
        let w = &self.window;
        Grid {
            height: self.input[0],
            width: self.input[1],
            pad_top: w.pad_top,
            pad_left: w.pad_left,
            out_h: w.out_h,
            out_w: w.out_w,
        }
    }

    /// Tiles of the input gradient: a convolution of the output gradient.
    pub fn gradient_grid(&self) -> Grid {
        let w = &self.window;
        Grid {
            height: w.out_h,
            width: w.out_w,
            pad_top: 2 - w.pad_top,
            pad_left: 2 - w.pad_left,
            out_h: self.input[0],
            out_w: self.input[1],
        }
    }

    /// Whether the gradient through relu and a 2×2 max pool can be taken without the image between.
    pub fn suits_pooled_gradient(&self) -> bool {
        let w = &self.window;
        w.kernel_h == 3
            && w.kernel_w == 3
            && w.stride_h == 1
            && w.stride_w == 1
            && w.pad_top + w.pad_left + w.pad_bottom + w.pad_right == 0
            && self.groups == 1
            && self.input[2].is_multiple_of(LANES)
            && self.filters.is_multiple_of(LANES)
    }

    fn forward_len(&self) -> usize {
        match self.method {
            Method::Winograd => winograd::CONVOLUTION_ELEMENTS * self.input[2] * self.filters,
            Method::Depthwise => 0,
            Method::Direct => self.groups * self.forward_group_len(),
        }
    }

    /// Packed weights of one group's forward pass.
    pub fn forward_group_len(&self) -> usize {
        let terms = self.window.kernel_h * self.window.kernel_w * self.depth();
        pack_len(terms, self.width_out())
    }

    fn backward_len(&self) -> usize {
        match self.method {
            Method::Winograd => winograd::CONVOLUTION_ELEMENTS * self.input[2] * self.filters,
            Method::Depthwise => 0,
            Method::Direct => self.groups * self.backward_group_len(),
        }
    }

    fn backward_group_len(&self) -> usize {
        self.classes.iter().map(|c| self.class_len(c)).sum()
    }

    /// Packed weights of one class of one group.
    pub fn class_len(&self, class: &Class) -> usize {
        pack_len(class.y.taps * class.x.taps * self.width_out(), self.depth())
    }

    fn plan_classes(&self) -> Vec<Class> {
        let w = &self.window;
        let axis = |kernel: usize, stride: usize, size: usize, pad: usize, r: usize| {
            let first = (r + stride - pad % stride) % stride;
            let taps = if r < kernel { (kernel - r).div_ceil(stride) } else { 0 };
            let before = kernel.div_ceil(stride) - 1;
            Axis {
                first,
                count: if first < size { (size - first).div_ceil(stride) } else { 0 },
                from: ((first + pad - r) / stride + before + 1).saturating_sub(taps),
                tap: r,
                taps,
            }
        };
        let mut classes = vec![];
        for ry in 0..w.stride_h {
            for rx in 0..w.stride_w {
                let y = axis(w.kernel_h, w.stride_h, self.input[0], w.pad_top, ry);
                let x = axis(w.kernel_w, w.stride_w, self.input[1], w.pad_left, rx);
                if y.taps * x.taps > 0 && y.count * x.count > 0 {
                    classes.push(Class { y, x });
                }
            }
        }
        classes
    }

    /// Whether some input pixels meet no tap at all, so that their gradient must be cleared.
    pub fn has_gaps(&self) -> bool {
        let covered: usize = self.classes.iter().map(|c| c.y.count * c.x.count).sum();
        covered < self.input[0] * self.input[1]
    }

    /// Packs this convolution's weights for the forward and the backward pass; `scratch` is reused
    /// between calls.
    pub fn pack(
        &self,
        isa: Isa,
        parameters: &[f32],
        (forward, backward): (&mut [f32], &mut [f32]),
        scratch: &mut Vec<f32>,
    ) {
        let weights = &parameters[self.kernel.clone()];
        if self.pooled && !backward.is_empty() {
            pooled::pack(weights, self.input[2], self.filters, &mut backward[..weights.len()]);
        }
        let backward = if self.pooled { &mut [] } else { backward };
        match self.method {
            Method::Depthwise => {}
            Method::Winograd => self.pack_winograd(isa, weights, forward, backward, scratch),
            Method::Direct => self.pack_direct(weights, forward, backward),
        }
    }

    fn pack_winograd(
        &self,
        isa: Isa,
        weights: &[f32],
        forward: &mut [f32],
        backward: &mut [f32],
        turned: &mut Vec<f32>,
    ) {
        let (ci, co) = (self.input[2], self.filters);
        // SAFETY: the lengths are those `forward_len` and `backward_len` took.
        unsafe {
            winograd::transform_weights(isa, weights.as_ptr(), ci, co, forward.as_mut_ptr());
        }
        if backward.is_empty() {
            return;
        }
        turned.resize(9 * ci * co, 0.0);
        for (tap, out) in turned.chunks_exact_mut(ci * co).enumerate() {
            transpose(&weights[(8 - tap) * ci * co..][..ci * co], co, out);
        }
        // SAFETY: as above, input and output channels exchanged.
        unsafe {
            winograd::transform_weights(isa, turned.as_ptr(), co, ci, backward.as_mut_ptr());
        }
    }

    fn pack_direct(&self, weights: &[f32], forward: &mut [f32], backward: &mut [f32]) {
        let w = &self.window;
        let (depth, wide) = (self.depth(), self.width_out());
        let terms = w.kernel_h * w.kernel_w * depth;
        for (g, out) in forward.chunks_exact_mut(self.forward_group_len()).enumerate() {
            let weight = |t: usize, c: usize| weights[t * self.filters + g * wide + c];
            direct::pack(terms, wide, weight, out);
        }
        if backward.is_empty() {
            return;
        }
        let mut rest = backward;
        for g in 0..self.groups {
            for class in &self.classes {
                let (out, tail) = rest.split_at_mut(self.class_len(class));
                rest = tail;
                let weight = |t: usize, c: usize| {
                    let (pixel, o) = (t / wide, t % wide);
                    let (jy, jx) = (pixel / class.x.taps, pixel % class.x.taps);
                    let ky = class.y.tap + w.stride_h * (class.y.taps - 1 - jy);
                    let kx = class.x.tap + w.stride_w * (class.x.taps - 1 - jx);
                    weights[((ky * w.kernel_w + kx) * depth + c) * self.filters + g * wide + o]
                };
                direct::pack(class.y.taps * class.x.taps * wide, depth, weight, out);
            }
        }
    }
}

fn choose(w: &Window, groups: usize, channels: usize, filters: usize) -> Method {
    let square = |h, v, n| h == n && v == n;
    let small_pad = w.pad_top.max(w.pad_left) <= 2;
    if groups > 1 && groups == channels && groups == filters {
        Method::Depthwise
    } else if groups == 1
        && square(w.kernel_h, w.kernel_w, 3)
        && square(w.stride_h, w.stride_w, 1)
        && small_pad
        && w.out_h.min(w.out_w) >= 3
        && channels.is_multiple_of(LANES)
        && filters.is_multiple_of(LANES)
    {
        Method::Winograd
    } else {
        Method::Direct
    }
}

/// Transposes rows of `columns` values, in blocks that stay in the cache.
pub fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    let rows = from.len() / columns;
    for r0 in (0..rows).step_by(LANES) {
        for c0 in (0..columns).step_by(LANES) {
            for c in c0..(c0 + LANES).min(columns) {
                for r in r0..(r0 + LANES).min(rows) {
                    to[c * rows + r] = from[r * columns + c];
                }
            }
        }
    }
}
