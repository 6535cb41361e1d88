//! GFLOP/s of each kernel beside the measured limit of the core.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark measures and prints"
)]

use planaria_learn::Buffer;
use planaria_learn::Isa;
use planaria_learn::engines::cpu::kernels::direct::{self, Direct};
use planaria_learn::engines::cpu::kernels::gemm::{self, Product};
use planaria_learn::engines::cpu::kernels::limit;
use planaria_learn::engines::cpu::kernels::norm::{self, Addend, Pixels, Reduce};
use planaria_learn::engines::cpu::kernels::pooled::{self, Pooled};
use planaria_learn::engines::cpu::kernels::tile::{Finish, Start};
use planaria_learn::engines::cpu::kernels::winograd::{self, Epilogue, Grid, Winograd};
use std::hint::black_box;
use std::ptr::null;
use std::time::Instant;

/// Images per call, so that caches are as in training.
const IMAGES: usize = 8;

fn main() {
    for isa in Isa::all().into_iter().filter(|i| *i != Isa::Portable) {
        let limit = limit(isa);
        println!("\n### {} (limit {limit:.0} GFLOP/s)\n", isa.name());
        println!("| kernel | GFLOP/s | share of the limit |\n|---|---|---|");
        let bench = Bench { isa, limit };
        for (m, n, k) in [(100, 128, 784), (100, 64, 128), (100, 10, 64), (128, 128, 9216)] {
            bench.dense(m, n, k);
        }
        for (size, input, output, pad) in
            [(32, 16, 16, 1), (16, 32, 32, 1), (8, 64, 64, 1), (24, 32, 64, 0)]
        {
            bench.winograd(size, input, output, pad);
        }
        for (size, input, output, stride, kernel) in [
            (32, 3, 16, 1, 3),
            (16, 16, 32, 2, 3),
            (16, 16, 32, 2, 1),
            (8, 32, 64, 2, 3),
            (26, 1, 32, 1, 3),
        ] {
            bench.direct(size, input, output, stride, kernel);
        }
        bench.pooled();
        println!("\n| pass over an image | values/ns |\n|---|---|");
        for (size, channels) in [(32, 16), (16, 32), (8, 64)] {
            bench.norms(size, channels);
        }
    }
}

/// Best time of a call in seconds.
fn best(mut f: impl FnMut()) -> f64 {
    f();
    let mut best = f64::MAX;
    for _ in 0..7 {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed().as_secs_f64() < 0.02 {
            f();
            calls += 1;
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(calls));
    }
    best
}

/// Fused multiply-adds on registers alone.
fn limit(isa: Isa) -> f64 {
    let (mut operations, mut total) = (0.0, 0.0);
    let t = best(|| {
        // SAFETY: `isa` is one the processor has.
        let (count, value) = unsafe { limit::multiply_adds(isa, 100_000, black_box(0.5)) };
        operations = count;
        total += value;
    });
    assert!(total > 0.0, "the sums are used");
    operations / t / 1e9
}

fn ones(len: usize) -> Buffer {
    vec![1.0; len].as_slice().into()
}

fn product(
    m: usize,
    n: usize,
    k: usize,
    a: &Buffer,
    b: &Buffer,
    c: &mut Buffer,
    s: &mut Buffer,
) -> Product {
    Product {
        m,
        n,
        k,
        a: a.as_ptr(),
        a_row: k,
        a_col: 1,
        b: b.as_ptr(),
        b_row: n,
        b_block: 16,
        c: c.as_mut_ptr(),
        c_row: n,
        start: Start::Zero,
        relu: false,
        scratch: s.as_mut_ptr(),
    }
}

struct Bench {
    isa: Isa,
    limit: f64,
}

impl Bench {
    fn row(&self, name: &str, flops: f64, f: impl FnMut()) {
        let rate = flops / best(f) / 1e9;
        println!("| {name} | {rate:.1} | {:.0}% |", 100.0 * rate / self.limit);
    }

    fn dense(&self, m: usize, n: usize, k: usize) {
        let flops = 2.0 * (m * n * k) as f64;
        let (x, w, mut y) = (ones(m * k), ones(k * n), Buffer::new(m * n));
        let (mut dw, mut dx) = (Buffer::new(k * n), Buffer::new(m * k));
        let mut s = Buffer::new(gemm::scratch_len(m, k).max(gemm::scratch_len(k.min(64), m)));
        let forward = product(m, n, k, &x, &w, &mut y, &mut s);
        let weights = Product {
            m: k,
            k: m,
            a_row: 1,
            a_col: k,
            b: y.as_ptr(),
            c: dw.as_mut_ptr(),
            ..forward
        };
        let input = Product {
            n: k,
            k: n,
            a: y.as_ptr(),
            a_row: n,
            b_row: 16,
            b_block: n * 16,
            c: dx.as_mut_ptr(),
            c_row: k,
            ..forward
        };
        for (name, p) in [("forward", forward), ("weights", weights), ("input", input)] {
            // SAFETY: the buffers have the products' sizes.
            self.row(&format!("dense {m}×{k}→{n} {name}"), flops, || unsafe {
                gemm::product(self.isa, p)
            });
        }
    }

    fn winograd(&self, size: usize, input: usize, output: usize, pad: usize) {
        let wide = size + 2 - 2 * pad;
        let (x, mut y) = (ones(IMAGES * wide * wide * input), ones(IMAGES * size * size * output));
        let (mut u, mut dw) = (Buffer::new(36 * input * output), Buffer::new(9 * input * output));
        let (mut v, mut m) =
            (Buffer::new(36 * winograd::plane(input)), Buffer::new(36 * winograd::plane(output)));
        let shape = Winograd {
            grid: Grid {
                height: wide,
                width: wide,
                pad_top: pad,
                pad_left: pad,
                out_h: size,
                out_w: size,
            },
            input_channels: input,
            output_channels: output,
            v: v.as_mut_ptr(),
            m: m.as_mut_ptr(),
        };
        let none = Epilogue { bias: null(), plus: null(), relu: false };
        let flops = (2 * 9 * size * size * input * output * IMAGES) as f64;
        let (xs, ys) = (wide * wide * input, size * size * output);
        let name = format!("winograd {size}×{size} {input}→{output}");
        let (isa, y) = (self.isa, y.as_mut_ptr());
        self.row(&format!("{name} forward, as if direct"), flops, || {
            for i in 0..IMAGES {
                // SAFETY: image i of both buffers.
                unsafe {
                    winograd::convolve(
                        isa,
                        shape,
                        x.as_ptr().add(i * xs),
                        u.as_ptr(),
                        y.add(i * ys),
                        none,
                    )
                };
            }
        });
        self.row(&format!("{name} weights, as if direct"), flops, || {
            let mut waiting = 0;
            // SAFETY: image i of both buffers.
            unsafe {
                for i in 0..IMAGES {
                    let (x, g) = (x.as_ptr().add(i * xs), y.add(i * ys));
                    waiting = winograd::weight_gradient(isa, shape, x, g, u.as_mut_ptr(), waiting);
                }
                winograd::finish_weight_gradient(
                    isa,
                    shape,
                    u.as_mut_ptr(),
                    waiting,
                    dw.as_mut_ptr(),
                );
            }
        });
    }

    fn direct(&self, size: usize, input: usize, output: usize, stride: usize, kernel: usize) {
        let wide = (size - 1) * stride + kernel;
        let (x, mut y) = (ones(wide * wide * input), ones(size * size * output));
        let w = ones(direct::pack_len(kernel * kernel * input, output));
        let mut dw = Buffer::new(kernel * kernel * input * output);
        let shape = Direct {
            input: x.as_ptr(),
            input_row: wide * input,
            step_x: stride * input,
            step_y: stride * wide * input,
            rows: kernel,
            run: kernel * input,
            out_h: size,
            out_w: size,
            channels: output,
            out_row: size * output,
            out_pixel: output,
            weight_row: output,
        };
        let flops = (2 * kernel * kernel * size * size * input * output) as f64;
        let name = format!("direct {kernel}×{kernel}/{stride} {size}×{size} {input}→{output}");
        let (isa, y) = (self.isa, y.as_mut_ptr());
        self.row(&format!("{name} forward"), flops, || {
            // SAFETY: the buffers have the shape's sizes.
            unsafe {
                direct::convolve(isa, shape, w.as_ptr(), y, Start::Zero, Finish::Store, false)
            };
        });
        self.row(&format!("{name} weights"), flops, || {
            // SAFETY: as above.
            unsafe { direct::weight_gradient(isa, shape, y, dw.as_mut_ptr()) };
        });
    }

    /// Net B's second convolution under its pool, half of the gradients zero.
    fn pooled(&self) {
        let shape = Pooled { width: 26, channels: 32, filters: 64, out_h: 12, out_w: 12 };
        let n = 12 * 12 * 64;
        let g: Vec<f32> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { 0.0 }).collect();
        let which: Vec<u8> = (0..n).map(|i| (i / 2 % 4) as u8).collect();
        let (x, w) = (ones(26 * 26 * 32), ones(9 * 32 * 64));
        let (mut dw, mut dx) = (Buffer::new(9 * 32 * 64), Buffer::new(26 * 26 * 32));
        let mut scratch = Buffer::new(pooled::scratch_len(12));
        let flops = (2 * 9 * n / 2 * 32) as f64;
        let null = std::ptr::null_mut();
        self.row("pooled 24×24 32→64 weights, half zero", flops, || {
            // SAFETY: the buffers have the shape's sizes.
            unsafe {
                let gradients = (dw.as_mut_ptr(), null);
                let (g, which) = (g.as_ptr(), which.as_ptr());
                pooled::weight_gradient(
                    self.isa,
                    shape,
                    x.as_ptr(),
                    g,
                    which,
                    gradients,
                    scratch.as_mut_ptr(),
                );
            }
        });
        self.row("pooled 24×24 32→64 input, half zero", flops, || {
            // SAFETY: as above.
            unsafe {
                pooled::input_gradient(
                    self.isa,
                    shape,
                    g.as_ptr(),
                    which.as_ptr(),
                    w.as_ptr(),
                    dx.as_mut_ptr(),
                    26,
                );
            }
        });
    }

    fn norms(&self, size: usize, channels: usize) {
        let pixels = Pixels { count: size * size, channels };
        let len = size * size * channels;
        let (z, mut y, s) = (ones(IMAGES * len), ones(IMAGES * len), ones(channels));
        let (mut sum, mut square) = (vec![0.0; channels], vec![0.0; channels]);
        let (isa, z, y, s) = (self.isa, z.as_ptr(), y.as_mut_ptr(), s.as_ptr());
        let row = |name: &str, f: &mut dyn FnMut(usize)| {
            let t = best(|| (0..IMAGES).for_each(|i| f(i * len)));
            println!(
                "| {name} {size}×{size}×{channels} | {:.1} |",
                (IMAGES * len) as f64 / t / 1e9
            );
        };
        // SAFETY (all): image at offset `i` of buffers that hold IMAGES of them.
        row("sums", &mut |i| unsafe {
            norm::sums(isa, pixels, z.add(i), s, sum.as_mut_ptr(), square.as_mut_ptr());
        });
        row("normalise, relu", &mut |i| unsafe {
            norm::apply(isa, pixels, z.add(i), (s, s), Addend::None, true, y.add(i));
        });
        row("normalise, add, relu", &mut |i| unsafe {
            norm::apply(isa, pixels, z.add(i), (s, s), Addend::Image(z.add(i)), true, y.add(i));
        });
        row("backward sums", &mut |i| unsafe {
            let first = Reduce {
                z: z.add(i),
                mean: s,
                sum: sum.as_mut_ptr(),
                product: square.as_mut_ptr(),
            };
            norm::reduce(isa, pixels, y.add(i), z.add(i), first, None);
        });
        row("input gradient", &mut |i| unsafe {
            norm::input_gradient(isa, pixels, z.add(i), z.add(i), (s, s, s), y.add(i));
        });
    }
}
