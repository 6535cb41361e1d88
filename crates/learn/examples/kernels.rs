//! GFLOP/s of each kernel against the limit of the core.
use planaria_learn::kernels::{buffer::Buffer, gemm::*, simd::Isa, tile::*, winograd, direct, norm};
use std::ptr::null;
use std::time::Instant;

fn time(name: &str, flops: f64, mut f: impl FnMut()) {
    f();
    let mut best = f64::MAX;
    for _ in 0..7 {
        let t = Instant::now();
        let mut n = 0;
        while t.elapsed().as_secs_f64() < 0.03 {
            f();
            n += 1;
        }
        best = best.min(t.elapsed().as_secs_f64() / f64::from(n));
    }
    println!("{name:50} {:7.1} GFLOP/s  {:9.2} us", flops / best / 1e9, best * 1e6);
}

fn main() {
    for isa in Isa::all() {
        if isa == Isa::Portable { continue; }
        println!("{}", isa.name());
        for (m, n, k) in [(100, 128, 784), (50, 128, 784), (100, 64, 128), (100, 10, 64), (128, 128, 9216), (64, 64, 64)] {
            let a = Buffer::new(m * k);
            let b = Buffer::new(n * k);
            let mut c = Buffer::new(m * n);
            let mut s = Buffer::new(scratch_len(m, k).max(scratch_len(k, m)));
            let fl = 2.0 * (m * n * k) as f64;
            let p = Product { m, n, k, a: a.as_ptr(), a_row: k, a_col: 1, b: b.as_ptr(), b_row: n, b_block: 16, c: c.as_mut_ptr(), c_row: n, start: Start::Zero, relu: false, scratch: s.as_mut_ptr() };
            time(&format!("product {m}x{n}x{k}"), fl, || unsafe { product(isa, p) });
            let mut dw = Buffer::new(k * n);
            let w = Product { m: k, n, k: m, a: a.as_ptr(), a_row: 1, a_col: k, b: c.as_ptr(), b_row: n, c: dw.as_mut_ptr(), c_row: n, ..p };
            time(&format!("weight gradient {k}x{n}x{m}"), fl, || unsafe { product(isa, w) });
            let mut dx = Buffer::new(m * k);
            let d = Product { m, n: k, k: n, a: c.as_ptr(), a_row: n, a_col: 1, b: b.as_ptr(), b_row: 16, b_block: n*16, c: dx.as_mut_ptr(), c_row: k, ..p };
            time(&format!("input gradient {m}x{k}x{n}"), fl, || unsafe { product(isa, d) });
        }
    
        for (h, ci, co) in [(32usize, 16usize, 16usize), (16, 32, 32), (8, 64, 64), (24, 32, 64)] {
            let pad = if h == 24 { 0 } else { 1 };
            let hi = h + 2 - 2 * pad;
            let n = 8;
            let x = Buffer::new(n * hi * hi * ci);
            let mut y = Buffer::new(n * h * h * co);
            let w = Buffer::new(9 * ci * co);
            let mut dw = Buffer::new(9 * ci * co);
            let mut u = Buffer::new(16 * ci * co);
            let (mut v, mut m) = (Buffer::new(winograd::planes_len(ci)), Buffer::new(winograd::planes_len(co)));
            let grid = winograd::Grid { height: hi, width: hi, pad_top: pad, pad_left: pad, out_h: h, out_w: h };
            let s = winograd::Winograd { grid, input_channels: ci, output_channels: co, v: v.as_mut_ptr(), m: m.as_mut_ptr() };
            let fl = (2 * 9 * h * h * ci * co * n) as f64;
            let e = winograd::Epilogue { bias: null(), plus: null(), relu: false };
            time(&format!("winograd {h}x{h} {ci}->{co}"), fl, || unsafe { for i in 0..n { winograd::convolve(isa, s, x.as_ptr().add(i * hi * hi * ci), u.as_ptr(), y.as_mut_ptr().add(i * h * h * co), e) } });
            time(&format!("winograd weights {h}x{h} {ci}->{co}"), fl, || unsafe { let mut k = 0; for i in 0..n { k = winograd::weight_gradient(isa, s, x.as_ptr().add(i * hi * hi * ci), y.as_ptr().add(i * h * h * co), u.as_mut_ptr(), k); } winograd::finish_weight_gradient(isa, s, u.as_mut_ptr(), k, dw.as_mut_ptr()) });
            time(&format!("transform weights {h}x{h} {ci}->{co}"), fl, || unsafe { winograd::transform_weights(isa, w.as_ptr(), ci, co, u.as_mut_ptr()) });
            let p = norm::Pixels { count: h * h, channels: co };
            let (mut a, mut b) = (vec![0f64; co], vec![0f64; co]);
            let s = Buffer::new(co);
            let bytes = (n * h * h * co) as f64;
            let z = Buffer::new(n * h * h * co);
            time("sums (elements/s)", bytes, || unsafe { for i in 0..n { norm::sums(isa, p, z.as_ptr().add(i * h * h * co), a.as_mut_ptr(), b.as_mut_ptr()) } });
            time("apply relu", bytes, || unsafe { for i in 0..n { norm::apply(isa, p, z.as_ptr().add(i * h * h * co), (s.as_ptr(), s.as_ptr()), norm::Addend::None, true, y.as_mut_ptr()) } });
            time("apply add", bytes, || unsafe { for i in 0..n { norm::apply(isa, p, z.as_ptr().add(i * h * h * co), (s.as_ptr(), s.as_ptr()), norm::Addend::Image(z.as_ptr().add(i * h * h * co)), true, y.as_mut_ptr()) } });
            time("reduce", bytes, || unsafe { for i in 0..n { norm::reduce(isa, p, y.as_mut_ptr().add(i * h * h * co), z.as_ptr().add(i * h * h * co), norm::Reduce { z: z.as_ptr().add(i * h * h * co), mean: s.as_ptr(), sum: a.as_mut_ptr(), product: b.as_mut_ptr() }, None) } });
            time("input gradient", bytes, || unsafe { for i in 0..n { norm::input_gradient(isa, p, z.as_ptr().add(i * h * h * co), z.as_ptr().add(i * h * h * co), (s.as_ptr(), s.as_ptr(), s.as_ptr()), y.as_mut_ptr()) } });
        }
        for (h, ci, co, st, k) in [(32usize, 3usize, 16usize, 1usize, 3usize), (16, 16, 32, 2, 3), (16, 16, 32, 2, 1), (8, 32, 64, 2, 3), (26, 1, 32, 1, 3), (24, 32, 64, 1, 3)] {
            let hp = (h - 1) * st + k;
            let x = Buffer::new(hp * hp * ci);
            let w = Buffer::new(direct::pack_len(k * k * ci, co));
            let mut dw = Buffer::new(k * k * ci * co);
            let mut y = Buffer::new(h * h * co);
            let d = direct::Direct { input: x.as_ptr(), input_row: hp * ci, step_x: st * ci, step_y: st * hp * ci, rows: k, run: k * ci, out_h: h, out_w: h, channels: co, out_row: h * co, out_pixel: co, weight_row: co };
            let fl = (2 * k * k * h * h * ci * co) as f64;
            time(&format!("direct {h}x{h} {ci}->{co} /{st} k{k}"), fl, || unsafe { direct::convolve(isa, d, w.as_ptr(), y.as_mut_ptr(), Start::Zero, Finish::Store, false) });
            time(&format!("direct weights {h}x{h} {ci}->{co} /{st} k{k}"), fl, || unsafe { direct::weight_gradient(isa, d, y.as_ptr(), dw.as_mut_ptr()) });
        }
    }
}
