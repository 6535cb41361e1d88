//! Convolutions of one image by whichever method was planned.

use super::workspace::Workspace;
use crate::engines::cpu::kernels::depthwise::{self, Depthwise};
use crate::engines::cpu::kernels::direct::{self, Direct, copy_rows};
use crate::engines::cpu::kernels::simd::Isa;
use crate::engines::cpu::kernels::tile::{Finish, Start};
use crate::engines::cpu::kernels::winograd::{self, Epilogue, Winograd};
use crate::engines::cpu::program::conv::{Conv, Method};
use std::ptr::null;

/// A convolution at work.
pub struct Convolver<'a> {
    pub isa: Isa,
    pub conv: &'a Conv,
    /// Number of the convolution.
    pub number: usize,
    pub parameters: &'a [f32],
    pub packed: &'a [f32],
}

impl Convolver<'_> {
    /// y = relu?(x ∗ weights + bias + plus); bias and plus may be null.
    ///
    /// # Safety
    /// Pointers hold one image each.
    pub unsafe fn forward(
        &self,
        ws: &mut Workspace,
        x: *const f32,
        epilogue: Epilogue,
        y: *mut f32,
    ) {
        let Epilogue { bias, plus, relu } = epilogue;
        let (isa, conv) = (self.isa, self.conv);
        let weights = self.packed[conv.forward.clone()].as_ptr();
        // SAFETY: sizes are the plan's.
        unsafe {
            match conv.method {
                Method::Winograd => {
                    let (v, m) = ws.tiles();
                    let shape = Winograd {
                        grid: conv.grid(),
                        input_channels: conv.input[2],
                        output_channels: conv.filters,
                        v,
                        m,
                    };
                    winograd::convolve(isa, shape, x, weights, y, epilogue);
                }
                Method::Depthwise => {
                    let x = self.pad(ws, x, 0);
                    let w = self.parameters[conv.kernel.clone()].as_ptr();
                    depthwise::convolve(isa, depthwise_shape(conv), x, w, bias, relu, y);
                }
                Method::Direct => {
                    for g in 0..conv.groups {
                        let shape = direct_shape(conv, self.pad(ws, x, g));
                        let at = g * conv.width_out();
                        let w = weights.add(g * conv.forward_group_len());
                        let start = offset(bias, at).map_or(Start::Zero, Start::Bias);
                        let finish = offset(plus, at).map_or(Finish::Store, Finish::StorePlus);
                        direct::convolve(isa, shape, w, y.add(at), start, finish, relu);
                    }
                }
            }
        }
    }

    /// Adds one image to the weight gradient (Winograd: to the tiles gathered).
    ///
    /// # Safety
    /// Pointers hold one image each, `dw` the kernel's gradient.
    pub unsafe fn weight_gradient(
        &self,
        ws: &mut Workspace,
        x: *const f32,
        dz: *const f32,
        dw: *mut f32,
    ) {
        let (isa, conv) = (self.isa, self.conv);
        // SAFETY: sizes are the plan's.
        unsafe {
            match conv.method {
                Method::Winograd => {
                    let shape = gather_shape(conv, ws);
                    let (du, waiting) = (ws.gathered.as_mut_ptr(), ws.waiting);
                    ws.waiting = winograd::weight_gradient(isa, shape, x, dz, du, waiting);
                }
                Method::Depthwise => {
                    let x = self.pad(ws, x, 0);
                    depthwise::weight_gradient(isa, depthwise_shape(conv), x, dz, dw);
                }
                Method::Direct => {
                    for g in 0..conv.groups {
                        let shape = direct_shape(conv, self.pad(ws, x, g));
                        let at = g * conv.width_out();
                        direct::weight_gradient(isa, shape, dz.add(at), dw.add(at));
                    }
                }
            }
        }
    }

    /// Turns gathered tiles into the weight gradient.
    ///
    /// # Safety
    /// `dw` holds the kernel's gradient.
    pub unsafe fn finish_weight_gradient(&self, ws: &mut Workspace, dw: *mut f32) {
        // SAFETY: sizes are the plan's.
        unsafe {
            let shape = gather_shape(self.conv, ws);
            let (du, waiting) = (ws.gathered.as_mut_ptr(), ws.waiting);
            winograd::finish_weight_gradient(self.isa, shape, du, waiting, dw);
        }
        ws.waiting = 0;
    }

    /// dx (+)= input gradient.
    ///
    /// # Safety
    /// Pointers hold one image each.
    pub unsafe fn input_gradient(
        &self,
        ws: &mut Workspace,
        dz: *const f32,
        dx: *mut f32,
        add: bool,
    ) {
        let (isa, conv) = (self.isa, self.conv);
        let weights = self.packed[conv.backward.clone()].as_ptr();
        // SAFETY: sizes are the plan's.
        unsafe {
            match conv.method {
                Method::Winograd => {
                    let (v, m) = ws.tiles();
                    let shape = Winograd {
                        grid: conv.gradient_grid(),
                        input_channels: conv.filters,
                        output_channels: conv.input[2],
                        v,
                        m,
                    };
                    let plus = if add { dx.cast_const() } else { null() };
                    let epilogue = Epilogue { bias: null(), plus, relu: false };
                    winograd::convolve(isa, shape, dz, weights, dx, epilogue);
                }
                Method::Depthwise => self.depthwise_input_gradient(ws, dz, dx, add),
                Method::Direct => self.direct_input_gradient(ws, dz, weights, dx, add),
            }
        }
    }

    unsafe fn direct_input_gradient(
        &self,
        ws: &mut Workspace,
        dz: *const f32,
        mut weights: *const f32,
        dx: *mut f32,
        add: bool,
    ) {
        let conv = self.conv;
        let [h, w, channels] = conv.input;
        let [top, left, _, padded_w] = conv.padded_gradient();
        let wide = conv.width_out();
        let buffer = ws.padded_gradient[self.number].as_mut_ptr();
        // SAFETY: sizes are the plan's; classes lie within the padded gradient.
        unsafe {
            if !add && conv.has_gaps() {
                dx.write_bytes(0, h * w * channels);
            }
            let finish = if add { Finish::Add } else { Finish::Store };
            for g in 0..conv.groups {
                let inner = buffer.add((top * padded_w + left) * wide);
                let rows = (conv.window.out_h, conv.window.out_w);
                let group = Group { channels: conv.filters, first: g * wide, count: wide };
                copy_group(dz, inner, rows, group, padded_w * wide);
                for class in &conv.classes {
                    let (y, x) = (&class.y, &class.x);
                    let shape = Direct {
                        input: buffer.add((y.from * padded_w + x.from) * wide),
                        input_row: padded_w * wide,
                        step_x: wide,
                        step_y: padded_w * wide,
                        rows: y.taps,
                        run: x.taps * wide,
                        out_h: y.count,
                        out_w: x.count,
                        channels: conv.depth(),
                        out_row: conv.window.stride_h * w * channels,
                        out_pixel: conv.window.stride_w * channels,
                        weight_row: 0,
                    };
                    let out = dx.add((y.first * w + x.first) * channels + g * conv.depth());
                    direct::convolve(self.isa, shape, weights, out, Start::Zero, finish, false);
                    weights = weights.add(conv.class_len(class));
                }
            }
        }
    }

    unsafe fn depthwise_input_gradient(
        &self,
        ws: &mut Workspace,
        dz: *const f32,
        dx: *mut f32,
        add: bool,
    ) {
        let conv = self.conv;
        let [h, w, channels] = conv.input;
        let (padded_h, padded_w) = conv.padded();
        let buffer = ws.padded_gradient[self.number].as_mut_ptr();
        let weights = self.parameters[conv.kernel.clone()].as_ptr();
        // SAFETY: sizes are the plan's.
        unsafe {
            let shape = depthwise_shape(conv);
            depthwise::input_gradient(self.isa, shape, dz, weights, buffer, padded_h);
            for y in 0..h {
                let at = ((y + conv.window.pad_top) * padded_w + conv.window.pad_left) * channels;
                for i in 0..w * channels {
                    let (from, to) = (*buffer.add(at + i), dx.add(y * w * channels + i));
                    *to = if add { *to + from } else { from };
                }
            }
        }
    }

    /// The input as the kernels want it: padded, one group's channels together.
    unsafe fn pad(&self, ws: &mut Workspace, x: *const f32, group: usize) -> *const f32 {
        let conv = self.conv;
        let buffer = &mut ws.padded[self.number];
        if buffer.is_empty() {
            return x;
        }
        let [h, w, channels] = conv.input;
        let (_, padded_w) = conv.padded();
        let depth = if conv.method == Method::Depthwise { channels } else { conv.depth() };
        let inner = (conv.window.pad_top * padded_w + conv.window.pad_left) * depth;
        // SAFETY: sizes are the plan's.
        unsafe {
            let to = buffer.as_mut_ptr().add(inner);
            let group = Group { channels, first: group * depth, count: depth };
            copy_group(x, to, (h, w), group, padded_w * depth);
        }
        buffer.as_ptr()
    }
}

/// Channels of every pixel that are copied.
struct Group {
    /// Channels of a pixel.
    channels: usize,
    first: usize,
    count: usize,
}

/// Copies channels of every pixel into rows `to_row` apart.
unsafe fn copy_group(
    from: *const f32,
    to: *mut f32,
    (h, w): (usize, usize),
    group: Group,
    to_row: usize,
) {
    let Group { channels, first, count } = group;
    // SAFETY: forwarded to the caller.
    unsafe {
        if count == channels {
            copy_rows(from, to, h, w * channels, to_row);
            return;
        }
        for y in 0..h {
            for x in 0..w {
                let pixel = from.add((y * w + x) * channels + first);
                pixel.copy_to_nonoverlapping(to.add(y * to_row + x * count), count);
            }
        }
    }
}

fn offset(p: *const f32, by: usize) -> Option<*const f32> {
    (!p.is_null()).then(|| p.wrapping_add(by))
}

fn gather_shape(conv: &Conv, ws: &mut Workspace) -> Winograd {
    let (v, m) = ws.gathering();
    Winograd {
        grid: conv.grid(),
        input_channels: conv.input[2],
        output_channels: conv.filters,
        v,
        m,
    }
}

fn depthwise_shape(conv: &Conv) -> Depthwise {
    let w = &conv.window;
    Depthwise {
        channels: conv.input[2],
        padded_w: conv.padded().1,
        kernel: (w.kernel_h, w.kernel_w),
        stride: (w.stride_h, w.stride_w),
        out: (w.out_h, w.out_w),
    }
}

fn direct_shape(conv: &Conv, input: *const f32) -> Direct {
    let w = &conv.window;
    let depth = conv.depth();
    let row = conv.padded().1 * depth;
    Direct {
        input,
        input_row: row,
        step_x: w.stride_w * depth,
        step_y: w.stride_h * row,
        rows: w.kernel_h,
        run: w.kernel_w * depth,
        out_h: w.out_h,
        out_w: w.out_w,
        channels: conv.width_out(),
        out_row: w.out_w * conv.filters,
        out_pixel: conv.filters,
        weight_row: conv.filters,
    }
}
