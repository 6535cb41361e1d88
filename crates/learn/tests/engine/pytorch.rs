//! The engine against PyTorch (float64) on the same weights and data: losses, the first gradient,
//! weights after several steps, running averages, and logits afterwards.
//!
//! The files under `reference/` are made by `bench/reference/make.py`.

use planaria_learn::engines::cpu::CpuTrainer;
use planaria_learn::{Examples, Isa, Network, Settings, Targets, Trainer, Weights};
use planaria_recipe::train::{Loss, Optimizer, Sgd};
use planaria_recipe::{Layer, Shape};
use serde_json::Value;
use std::path::Path;

struct Reference {
    header: Value,
    values: Vec<f32>,
}

impl Reference {
    fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("a reference file");
        let end = bytes.iter().position(|b| *b == b'\n').expect("a header line");
        let values = bytes[end + 1..].chunks_exact(4);
        Self {
            header: serde_json::from_slice(&bytes[..end]).expect("JSON"),
            values: values.map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect(),
        }
    }

    fn get<T: serde::de::DeserializeOwned>(&self, key: &str) -> T {
        serde_json::from_value(self.header[key].clone()).unwrap_or_else(|e| panic!("{key}: {e}"))
    }

    fn tensor(&self, name: &str) -> Option<&[f32]> {
        let tensors = self.header["tensors"].as_array().expect("a list");
        let t = tensors.iter().find(|t| t["name"] == name)?;
        let len: u64 = t["shape"].as_array()?.iter().map(|d| d.as_u64().expect("a size")).product();
        let from = t["offset"].as_u64()? as usize;
        Some(&self.values[from..from + len as usize])
    }

    fn input(&self) -> Shape {
        match self.get::<Vec<usize>>("input").as_slice() {
            [h, w, c] => Shape::Image { height: *h, width: *w, channels: *c },
            [n] => Shape::Vector(*n),
            other => panic!("input {other:?}"),
        }
    }

    fn trainer(&self, optimizer: Optimizer, isa: Isa) -> CpuTrainer {
        let network = Network::new(&self.get::<Vec<Layer>>("layers"), self.input()).expect("fits");
        let mut trainer = CpuTrainer::new(
            network,
            Settings {
                seed: 0,
                batch: self.get("examples"),
                shards: 1,
                threads: 1,
                loss: self.get::<Loss>("loss"),
                label_smoothing: self.get("label_smoothing"),
                optimizer,
                clip_norm: None,
                isa: Some(isa),
            },
        );
        let slots = trainer.weights().optimizer;
        let (parameters, state) = (self.tensor("parameters"), self.tensor("state"));
        let weights = Weights {
            parameters: parameters.expect("parameters").to_vec(),
            state: state.expect("state").to_vec(),
            optimizer: slots,
        };
        trainer.restore(&weights).expect("the same network");
        trainer
    }
}

/// Distance of a from b, relative to b's size.
fn apart(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |f: &dyn Fn(usize) -> f64| (0..a.len()).map(|i| f(i) * f(i)).sum::<f64>().sqrt();
    let difference = square(&|i| f64::from(a[i]) - f64::from(b[i]));
    difference / square(&|i| f64::from(b[i])).max(1e-6)
}

fn check(path: &Path, isa: Isa) {
    let name = path.file_stem().expect("a name").to_string_lossy().to_string();
    let r = Reference::load(path);
    let inputs = r.tensor("inputs").expect("inputs");
    let raw = r.tensor("targets").expect("targets");
    let classes: Vec<u32> = raw.iter().map(|c| *c as u32).collect();
    let targets = match r.get::<String>("targets").as_str() {
        "classes" => Targets::Classes(&classes),
        _ => Targets::Values(raw),
    };
    let batch = Examples { inputs, targets };
    if let Some(expect) = r.tensor("gradient") {
        let plain = Optimizer::Sgd(Sgd { learning_rate: 1.0, ..Sgd::default() });
        let mut trainer = r.trainer(plain, isa);
        let before = trainer.parameters().to_vec();
        trainer.step(0, 1.0, batch).expect("finite");
        let found: Vec<f32> = before.iter().zip(trainer.parameters()).map(|(b, a)| b - a).collect();
        let d = apart(&found, expect);
        assert!(d < 1e-4, "{name}: gradient is {d:.1e} apart");
    }
    let optimizer: Optimizer = r.get("optimizer");
    let rate = optimizer.learning_rate();
    let mut trainer = r.trainer(optimizer, isa);
    for (step, expect) in r.get::<Vec<f64>>("losses").into_iter().enumerate() {
        let result = trainer.step(step as u64, rate, batch).expect("finite");
        let loss = result.loss_sum / result.examples as f64;
        let d = (loss - expect).abs() / expect.abs().max(1e-3);
        assert!(d < 1e-4, "{name}: loss of step {step} is {loss} instead of {expect}");
    }
    let after = |what: &str, found: &[f32]| {
        let d = apart(found, r.tensor(what).expect(what));
        assert!(d < 1e-4, "{name}: {what} is {d:.1e} apart");
    };
    after("parameters_after", trainer.parameters());
    after("state_after", trainer.state());
    let mut logits = vec![0.0; r.tensor("logits").expect("logits").len()];
    trainer.predict(inputs, &mut logits);
    after("logits", &logits);
}

#[test]
fn training_agrees_with_pytorch() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("reference files")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "ref"))
        .collect();
    paths.sort();
    assert!(paths.len() >= 20, "reference files are there");
    let mut wrong = vec![];
    for path in &paths {
        for isa in Isa::all() {
            let run = std::panic::catch_unwind(|| check(path, isa));
            if let Err(e) = run {
                let text = e.downcast_ref::<String>().cloned().unwrap_or_default();
                wrong.push(format!("{}: {text}", isa.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
