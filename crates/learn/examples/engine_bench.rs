//! Steps or images per second of nets A, B and C, as one line of JSON.
//!
//! `engine_bench --net C --mode train --threads 1 --shards 1 --seconds 2 [--isa avx2] [--batch 128]`
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a benchmark measures and prints"
)]

use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Isa, Network, Settings, Targets, Trainer};
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::train::{Loss, Optimizer, Sgd};
use planaria_recipe::{Preset, Shape};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |name: &str, default: &str| {
        let at = args.iter().position(|a| a == name);
        at.and_then(|i| args.get(i + 1)).map_or(default.to_string(), Clone::clone)
    };
    let (net, mode) = (get("--net", "C"), get("--mode", "train"));
    let threads: usize = get("--threads", "1").parse().expect("a number");
    let shards: usize = get("--shards", &threads.to_string()).parse().expect("a number");
    let seconds: f64 = get("--seconds", "2").parse().expect("a number");
    let isa = Isa::all().into_iter().find(|i| i.name().ends_with(&get("--isa", "")));
    let image = |n, channels| Shape::Image { height: n, width: n, channels };
    let (preset, input, batch) = match net.as_str() {
        "A" => (Preset::Mlp, image(28, 1), 100),
        "B" => (Preset::Cnn, image(28, 1), 128),
        _ => (Preset::Resnet20, image(32, 3), 128),
    };
    let batch: usize = get("--batch", &batch.to_string()).parse().expect("a number");
    let layers = planaria_recipe::presets::expand(preset, 10);
    let network = Network::new(&layers, input).expect("presets fit");
    let mut trainer = CpuTrainer::new(
        network,
        Settings {
            seed: 1,
            batch,
            shards,
            threads,
            loss: Loss::CrossEntropy,
            label_smoothing: 0.0,
            optimizer: Optimizer::Sgd(Sgd::default()),
            clip_norm: None,
            isa,
        },
    );
    let mut stream = Stream::new(1, Purpose::Test, 0, 0);
    let inputs: Vec<f32> = (0..batch * input.len()).map(|_| stream.normal()).collect();
    let classes: Vec<u32> = (0..batch).map(|i| (i * 7 % 10) as u32).collect();
    let mut outputs = vec![0.0; batch * 10];
    let mut step = 0;
    let mut once = || {
        if mode == "train" {
            let targets = Targets::Classes(&classes);
            trainer.step(step, 0.01, Examples { inputs: &inputs, targets }).expect("finite");
            step += 1;
        } else {
            trainer.predict(&inputs, &mut outputs);
        }
    };
    for _ in 0..3 {
        once();
    }
    let (start, mut times) = (Instant::now(), vec![]);
    while start.elapsed().as_secs_f64() < seconds {
        let t = Instant::now();
        once();
        times.push(t.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    let unit = if net == "A" { "step" } else { "img" };
    let per = if net == "A" { 1.0 } else { batch as f64 };
    println!(
        "{{\"engine\":\"planaria\",\"isa\":\"{}\",\"net\":\"{net}\",\"mode\":\"{mode}\",\"threads\":{threads},\"shards\":{shards},\"per_second\":{:.1},\"unit\":\"{unit}\",\"peak_rss_mb\":{:.1}}}",
        trainer.name(),
        per / times[times.len() / 2],
        peak_rss_mb()
    );
}

fn peak_rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    let kb = line.and_then(|l| l.split_whitespace().nth(1)).and_then(|v| v.parse::<f64>().ok());
    kb.unwrap_or(0.0) / 1024.0
}
