//! Stop and go on, by the real binary: the same bits as if nothing had happened.

mod binary;

use binary::{Place, talk};
use planaria_protocol::event::{Event, What};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Long enough to be stopped in the middle.
const LONG: [&str; 4] = ["--set", "train.epochs=12", "--set", "data.examples=1500"];

#[test]
fn stop_and_resume_give_the_weights_of_an_unbroken_run() {
    let place = Place::new();
    let unbroken = place.json(&[&["train", "tiny.yaml", "--json"], &LONG[..]].concat(), 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();

    let child = start(&place, &[]);
    wait_for_steps(&place, 5);
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    let said = talk(&output);
    assert!(said.contains("interrupted at step") && said.contains("planaria resume "), "{said}");

    let run = place.only_run();
    let stopped: Value = read_json(&run.join("report.json"));
    assert_eq!(stopped["outcome"], "interrupted");
    assert!(stopped["steps"].as_u64() < unbroken["steps"].as_u64(), "{}", stopped["steps"]);

    let resumed = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
    for field in ["weights_sha256", "steps", "epochs", "examples", "loss", "confusion", "best"] {
        assert_eq!(resumed[field], unbroken[field], "{field}");
    }
    assert_eq!((&resumed["outcome"], &resumed["resumes"]), (&"completed".into(), &1.into()));
    no_step_twice(&run);
}

#[test]
fn every_step_is_a_place_to_go_on_from() {
    let place = Place::new();
    let sets = ["--set", "output={checkpoint_steps: 1, keep: 100}"];
    let unbroken = place.json(&[&["train", "tiny.yaml", "--json"], &sets[..]].concat(), 0);
    let run = place.only_run();
    let report = run.join("report.json");
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
    let checkpoint_folder = run.join("checkpoints");
    // From the end to the start: each time the run forgets its end, and `last` is one before.
    for step in (1..unbroken["steps"].as_u64().unwrap()).rev() {
        fs::remove_file(&report).unwrap();
        fs::remove_file(checkpoint_folder.join("last")).unwrap();
        symlink(format!("step-{step:010}"), checkpoint_folder.join("last")).unwrap();
        let resumed = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
        for field in ["weights_sha256", "steps", "examples", "loss", "confusion", "best"] {
            assert_eq!(resumed[field], unbroken[field], "{field} after step {step}");
        }
        let now = fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
        assert_eq!(now, lines, "lines of metrics after step {step}");
    }
    no_step_twice(&run);
}

#[test]
fn kill_nine_loses_nothing_but_the_steps_since_the_checkpoint() {
    let place = Place::new();
    let unbroken = place.json(&[&["train", "tiny.yaml", "--json"], &LONG[..]].concat(), 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();

    let child = start(&place, &["--set", "output.checkpoint_steps=7"]);
    wait_for_steps(&place, 20);
    signal(&child, "KILL");
    assert_eq!(child.wait_with_output().unwrap().status.code(), None);

    // The newest checkpoint is damaged as well: the one before it serves.
    let run = place.only_run();
    flip(&run.join("checkpoints/last/part-0"));

    let output = place.run(&["resume", run.to_str().unwrap(), "--json", "--threads", "1"]);
    let said = talk(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("checkpoints/last` is damaged"), "{said}");
    let resumed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(resumed["weights_sha256"], unbroken["weights_sha256"]);
    no_step_twice(&run);
}

#[test]
fn a_flipped_byte_costs_one_checkpoint() {
    let place = Place::new();
    let unbroken = place.json(&["train", "tiny.yaml", "--json"], 0);
    let run = place.only_run();
    for file in ["part-0", "manifest.json"] {
        fs::remove_file(run.join("report.json")).unwrap();
        let last = run.join("checkpoints/last");
        flip(&last.join(file));
        let output = place.run(&["resume", run.to_str().unwrap(), "--json"]);
        let said = talk(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("checkpoints/last` is damaged: `{file}` ")), "{said}");
        assert!(said.contains("goes on after step 18"), "{said}");
        let resumed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(resumed["weights_sha256"], unbroken["weights_sha256"]);
    }
    // Where all are damaged nothing is made up.
    fs::remove_file(run.join("report.json")).unwrap();
    for step in fs::read_dir(run.join("checkpoints")).unwrap() {
        let path = step.unwrap().path();
        if !path.is_symlink() {
            flip(&path.join("part-0"));
        }
    }
    let refused = place.run(&["resume", run.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{}", talk(&refused));
    assert!(talk(&refused).contains("no checkpoint is whole"), "{}", talk(&refused));
}

#[test]
fn events_tell_all_sessions() {
    let place = Place::new();
    let child = start(&place, &["--set", "output.checkpoint_steps=5"]);
    wait_for_steps(&place, 10);
    signal(&child, "KILL");
    child.wait_with_output().unwrap();
    let run = place.only_run();
    let path = run.join("events.jsonl");
    // The crash may have torn a line.
    let torn = [&fs::read(&path).unwrap()[..], b"{\"seconds\":1.5,\"ev"].concat();
    fs::write(&path, &torn).unwrap();
    let report = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
    assert_eq!((&report["generation"], &report["resumes"]), (&2.into(), &1.into()));
    assert_eq!(report["samples_exactly_once"], true);

    assert!(fs::read(&path).unwrap().starts_with(&torn), "history is not written anew");
    let events = planaria_protocol::journal::read(&path).unwrap();
    let mut resumed_from = None;
    for generation in [1, 2] {
        let session: Vec<&Event> = events.iter().filter(|e| e.generation == generation).collect();
        let What::Started(started) = &session[0].what else { panic!("{:?}", session[0]) };
        assert_eq!(started.steps_per_epoch * started.epochs, report["steps"].as_u64().unwrap());
        let (mut step, batches) = (started.step, started.steps_per_epoch);
        for event in &session[1..] {
            match &event.what {
                What::Steps(figures) => {
                    assert_eq!(figures.step, step + 1, "a line for every step of a small run");
                    step = figures.step;
                }
                What::Epoch { figures, exact, .. } => {
                    assert_eq!((figures.step, *exact), (figures.epoch * batches, true));
                }
                What::Saved { step: saved, reason, folder, .. } => {
                    assert_eq!(*saved, step);
                    assert!(step.is_multiple_of(5) || step.is_multiple_of(batches), "{reason}");
                    assert!(folder.starts_with("checkpoints/step-"), "{folder}");
                    resumed_from = Some(step).filter(|_| generation == 1).or(resumed_from);
                }
                What::Committed { first_step, end_step, read, .. } => {
                    assert_eq!((*first_step, *end_step), (step, step + 1), "told before its line");
                    assert!(read.count > 0);
                }
                What::Scored { examples, .. } => assert_eq!(Some(*examples), scored(&report)),
                What::Ended { outcome, weights_sha256, step: last, .. } => {
                    assert_eq!((*outcome, *last), (planaria::Outcome::Completed, step));
                    assert_eq!(weights_sha256.as_deref(), report["weights_sha256"].as_str());
                }
                other => panic!("{other:?}"),
            }
        }
        if generation == 2 {
            // The crash may have come between a checkpoint and its event.
            assert!(Some(started.step) >= resumed_from, "{} {resumed_from:?}", started.step);
            assert!(matches!(session.last().unwrap().what, What::Ended { .. }));
        }
    }
    assert!(events.is_sorted_by_key(|e| e.generation));
}

#[test]
fn a_run_killed_before_its_first_checkpoint_starts_again() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json"], 0);
    let run = place.only_run();
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    fs::create_dir(run.join("checkpoints")).unwrap();
    for file in ["report.json", "metrics.jsonl"] {
        fs::remove_file(run.join(file)).unwrap();
    }
    fs::remove_dir_all(run.join("tensorboard")).unwrap();
    let again = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
    assert_eq!(again["weights_sha256"], report["weights_sha256"]);
    no_step_twice(&run);
}

#[test]
fn a_finished_run_says_so() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json", "--set", "train.epochs=1"], 0);
    let run = place.only_run();
    let again = place.json(&["resume", run.to_str().unwrap(), "--json"], 0);
    assert_eq!(report, again);
    let output = place.run(&["resume", report["run_id"].as_str().unwrap()]);
    assert!(output.status.success() && talk(&output).contains("nothing is left to do"));
}

#[test]
fn a_finished_run_can_be_trained_for_longer() {
    let place = Place::new();
    let long = place.json(&["train", "tiny.yaml", "--json", "--set", "train.epochs=5"], 0);
    fs::remove_dir_all(place.path().join("runs")).unwrap();
    place.json(&["train", "tiny.yaml", "--json"], 0);
    let run = place.only_run();
    // The newest run, and any run by the beginning of its name.
    let output = place.run(&["resume", "--set", "train.epochs=4"]);
    assert_eq!(output.status.code(), Some(0), "{}", talk(&output));
    assert!(talk(&output).contains("goes on after step 27"), "{}", talk(&output));
    let resumed = place.json(&["resume", "tiny-", "--set", "train.epochs=5", "--json"], 0);
    for field in ["weights_sha256", "steps", "epochs", "loss", "confusion", "best"] {
        assert_eq!(resumed[field], long[field], "{field}");
    }
    let recipe = fs::read_to_string(run.join("recipe.yaml")).unwrap();
    assert!(recipe.contains("epochs: 5"), "{recipe}");
    place.json(&["audit", "tiny-", "--json"], 0);
    no_step_twice(&run);

    let refused = |set: &str, expect: &str| {
        let before = fs::read(run.join("recipe.yaml")).unwrap();
        let output = place.run(&["resume", "--set", set]);
        assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
        assert!(talk(&output).contains(expect), "{}", talk(&output));
        assert_eq!(fs::read(run.join("recipe.yaml")).unwrap(), before);
    };
    // Together with more epochs, because a run that has ended has nothing to do for a change.
    refused(
        "train={epochs: 9, batch: 60, optimizer: {sgd: {learning_rate: 0.05, momentum: 0.9}}}",
        "another training: `train.batch` was 50 and is 60",
    );
    refused("train.epoch=9", "did you mean `epochs`");
    refused("seed=3", "another training: `seed` was 5 and is 3");
    refused("output.dir=other", "the run stays in its folder");
    let unchanged = place.run(&["resume", "--set", "train.epochs=2"]);
    assert!(talk(&unchanged).contains("nothing is left to do"), "{}", talk(&unchanged));
    // Without checkpoints it would begin anew, over the model that it has.
    fs::remove_dir_all(run.join("checkpoints")).unwrap();
    let model = fs::read(run.join("model.safetensors")).unwrap();
    refused("train.epochs=9", "has no checkpoint to go on from");
    assert_eq!(fs::read(run.join("model.safetensors")).unwrap(), model);
}

#[test]
fn the_beginning_of_a_name_must_be_one_runs() {
    let place = Place::new();
    for name in ["net-a", "net-b"] {
        let folder = place.path().join("runs").join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("recipe.yaml"), "name: net\n").unwrap();
    }
    let check = |run: &str, expect: &[&str]| {
        let output = place.run(&["audit", run]);
        assert_eq!(output.status.code(), Some(2), "{}", talk(&output));
        expect.iter().for_each(|e| assert!(talk(&output).contains(e), "{}", talk(&output)));
    };
    check("net", &["2 runs begin with `net`", "net-a", "net-b"]);
    check("other", &["there is no run `other`", "runs here: net-"]);
    let empty = Place::new();
    let output = empty.run(&["stop"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(talk(&output).contains("there is no run in `runs`"), "{}", talk(&output));
}

#[test]
fn one_process_per_run_and_only_its_own_recipe() {
    let place = Place::new();
    let child = start(&place, &["--set", "train.epochs=10000"]);
    wait_for_steps(&place, 2);
    let run = place.only_run();
    let refused = place.run(&["resume", run.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(talk(&refused).contains("in use by another planaria process"), "{}", talk(&refused));
    signal(&child, "TERM");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));

    let recipe = run.join("recipe.yaml");
    let text = fs::read_to_string(&recipe).unwrap();
    fs::write(&recipe, text.replace("learning_rate: 0.05", "learning_rate: 0.06")).unwrap();
    let refused = place.run(&["resume", run.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2));
    let said = talk(&refused);
    assert!(said.contains("was changed after the run began"), "{said}");
    assert!(said.contains("`train.optimizer.sgd.learning_rate` was 0.05 and is 0.06"), "{said}");
}

/// A folder that was put in its place may be another session's by now.
#[test]
fn a_session_writes_nothing_into_a_folder_that_was_put_in_its_place() {
    for processes in [&[][..], &["--workers", "2"]] {
        let place = Place::new();
        let more = ["--set", "train.epochs=5000", "--set", "output.checkpoint_steps=50"];
        let child = start(&place, &[&more[..], processes].concat());
        wait_for_steps(&place, 5);
        let run = place.only_run();
        fs::rename(&run, place.path().join("moved")).unwrap();
        fs::create_dir(&run).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", talk(&output));
        assert!(talk(&output).contains("it was replaced"), "{}", talk(&output));
        for written in ["report.json", "report.html", "model.safetensors"] {
            assert!(!run.join(written).exists(), "{written}");
        }
    }
}

#[test]
fn an_ignored_signal_stays_ignored_and_a_first_one_is_answered() {
    let place = Place::new();
    let arguments = [&["train", "tiny.yaml"], &LONG[..], &["--set", "train.epochs=10000"]].concat();
    let program = place.command(&arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(program.get_program());
    shell.args(program.get_args()).current_dir(place.path());
    binary::listening(&mut shell);
    let mut child = shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_steps(&place, 2);
    signal(&child, "HUP");
    wait_for_steps(&place, 6);
    assert!(child.try_wait().unwrap().is_none(), "nohup's process was stopped");
    signal(&child, "INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", talk(&output));
    assert!(talk(&output).contains("Ctrl-C again quits without saving"), "{}", talk(&output));
}

#[test]
fn other_data_is_refused_by_its_file() {
    let place = Place::new();
    let idx = |dimensions: &[u32], values: Vec<u8>| {
        let sizes = dimensions.iter().flat_map(|d| d.to_be_bytes());
        [0, 0, 8, dimensions.len() as u8]
            .into_iter()
            .chain(sizes)
            .chain(values)
            .collect::<Vec<u8>>()
    };
    let images = place.path().join("train-images-idx3-ubyte");
    let content = idx(&[40, 4, 4], (0..640).map(|i| (i % 251) as u8).collect());
    fs::write(&images, &content).unwrap();
    let labels = idx(&[40], (0..40).map(|i| i % 10).collect());
    fs::write(place.path().join("train-labels-idx1-ubyte"), labels).unwrap();
    let recipe = "{name: net, data: {train: ., validation: null, test: null}, \
                  model: {layers: [Flatten, {Dense: {units: 10}}]}, train: {epochs: 2, batch: 8}}";
    fs::write(place.path().join("net.yaml"), recipe).unwrap();
    let report = place.json(&["train", "net.yaml", "--json"], 0);
    let run = place.only_run();
    let run = run.to_str().unwrap();
    fs::remove_file(format!("{run}/report.json")).unwrap();

    let mut flipped = content.clone();
    flipped[300] ^= 1;
    fs::write(&images, flipped).unwrap();
    let refused = place.run(&["resume", run]);
    assert_eq!(refused.status.code(), Some(2), "{}", talk(&refused));
    assert!(talk(&refused).contains("train-images-idx3-ubyte` was changed"), "{}", talk(&refused));
    // The checkpoint itself knows its data: nothing else of the run has to be there.
    let events = format!("{run}/events.jsonl");
    let told = fs::read(&events).unwrap();
    fs::remove_file(&events).unwrap();
    let refused = place.run(&["resume", run]);
    assert_eq!(refused.status.code(), Some(2), "{}", talk(&refused));
    assert!(talk(&refused).contains("train-images-idx3-ubyte` was changed"), "{}", talk(&refused));
    fs::write(&events, told).unwrap();

    fs::write(&images, content).unwrap();
    assert_eq!(
        place.json(&["resume", run, "--json"], 0)["weights_sha256"],
        report["weights_sha256"]
    );
    // The folder has no test files.
    let scores = place.json(&["evaluate", run, "--data", ".", "--json"], 0);
    assert_eq!(scores["examples"], 40);
}

fn start(place: &Place, more: &[&str]) -> Child {
    let arguments = [&["train", "tiny.yaml"], &LONG[..], more].concat();
    place.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the run has written so many lines of metrics.
#[expect(clippy::disallowed_methods, reason = "another process is waited for, by what it writes")]
fn wait_for_steps(place: &Place, steps: usize) {
    for _ in 0..3000 {
        std::thread::sleep(Duration::from_millis(10));
        let Ok(mut runs) = fs::read_dir(place.path().join("runs")) else { continue };
        let Some(Ok(run)) = runs.next() else { continue };
        let text = fs::read_to_string(run.path().join("metrics.jsonl")).unwrap_or_default();
        if text.lines().count() >= steps {
            return;
        }
    }
    panic!("the run wrote no {steps} lines in 30 s");
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Changes a byte in the middle.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn scored(report: &Value) -> Option<u64> {
    report["evaluated_examples"].as_u64()
}

fn no_step_twice(run: &Path) {
    let text = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let mut last = (0, 0);
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let place = (line["step"].as_u64().unwrap(), u8::from(line["span"] == "epoch"));
        assert!(place > last, "{place:?} after {last:?}");
        last = place;
    }
    let audit = planaria::evidence::audit_run(run).unwrap();
    assert!(audit.exactly_once && audit.ended, "{:?}", audit.reasons);
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}
