//! Training from a program, as `src/lib.rs` shows it; several processes need the real binary.

use planaria::layers::{Activation, dense, dense_with, flatten};
use planaria::{Outcome, Planaria, Report};
use planaria_recipe::train::{Adam, Optimizer};
use std::path::Path;

fn tiny(runs: &Path) -> Planaria {
    Planaria::new("tiny")
        .data("digits")
        .examples(400)
        .model([flatten(), dense_with(16, Activation::Relu), dense(10)])
        .epochs(2)
        .batch(50)
        .optimizer(Optimizer::Adam(Adam::default()))
        .seed(7)
        .set("train.shards", "4")
        .output_dir(runs)
        .quiet(true)
}

#[track_caller]
fn done(training: Planaria) -> Report {
    let report = training.train().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(report.outcome, Outcome::Completed);
    report
}

#[test]
fn one_process_and_several_end_with_the_same_weights() {
    let runs = tempfile::tempdir().unwrap();
    let one = done(tiny(runs.path()));
    assert_eq!((one.workers, one.servers, one.epochs, one.seed), (0, 0, 2, 7));
    assert_eq!((one.shards, one.batch), (4, 50));
    let program = env!("CARGO_BIN_EXE_planaria");
    let many = done(tiny(runs.path()).workers(2).servers(1).threads(1).program(program));
    assert_eq!((many.workers, many.servers, many.threads), (2, 1, 2));
    assert_eq!(many.weights_sha256, one.weights_sha256);
    // The test program lies beside it, so that it is found as well.
    let found = done(tiny(runs.path()).workers(2));
    assert_eq!(found.weights_sha256, one.weights_sha256);
}

#[test]
fn a_file_is_overridden_and_mistakes_are_all_named() {
    let dir = tempfile::tempdir().unwrap();
    let recipe = dir.path().join("r.yaml");
    let text = "{name: r, data: {train: digits, examples: 200}, model: {preset: mlp}}";
    std::fs::write(&recipe, text).unwrap();
    let training = Planaria::from_recipe(&recipe).epochs(1).output_dir(dir.path()).quiet(true);
    let report = done(training.model([flatten(), dense(10)]));
    assert_eq!((report.epochs, report.parameters, report.recipe.as_str()), (1, 7850, "r"));

    let refused = Planaria::new("r").epochs(0).set("train.bach", "3").quiet(true).train();
    let said = refused.unwrap_err().to_string();
    for expect in ["epochs", "bach", "data", "model"] {
        assert!(said.contains(expect), "{expect} is missing in {said}");
    }
}

#[test]
fn a_script_from_a_program() {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let script = "import argparse, os\n\
                  p = argparse.ArgumentParser()\n\
                  p.add_argument('--epochs', type=int)\n\
                  p.add_argument('--data')\n\
                  a = p.parse_args()\n\
                  lines = len(open(a.data).readlines())\n\
                  for epoch in range(a.epochs):\n    \
                  print(f'epoch={epoch + 1} loss={lines / (epoch + 1)}')\n\
                  open('out.txt', 'w').write('done')\n";
    std::fs::write(place.path().join("train.py"), script).expect("a script");
    std::fs::write(place.path().join("data.txt"), "a\nb\nc\n").expect("data");
    std::fs::write(place.path().join("lab.yaml"), "pool: {machines: 2}\n").expect("a pool");
    let report = Planaria::script(place.path().join("train.py"))
        .workers(5)
        .epochs(5)
        .data(place.path().join("data.txt"))
        .pool(place.path().join("lab.yaml"))
        .outputs(["*.txt"])
        .output_dir(place.path().join("runs"))
        .program(env!("CARGO_BIN_EXE_planaria"))
        .run()
        .expect("it ends well");
    assert_eq!((report.outcome, report.roles["worker"]), (planaria::Outcome::Completed, 5));
    assert_eq!(report.machines.len(), 2);
    assert_eq!(report.figures["epoch"], 5);
    assert_eq!(report.figures["loss"], 0.6);
    assert_eq!(report.points, 25);
    let out = place.path().join("runs").join(&report.run_id).join("outputs/out.txt");
    assert_eq!(std::fs::read_to_string(out).expect("an output"), "done");
}
