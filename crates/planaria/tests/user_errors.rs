//! Mistakes of the user: exit code 2, a message that helps, never a backtrace.

mod binary;

use binary::{Place, talk};
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[track_caller]
fn refused(place: &Place, arguments: &[&str], expect: &str) {
    let output = place.run(arguments);
    let said = talk(&output);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    assert!(said.contains(expect), "{arguments:?} should mention {expect:?}: {said}");
    assert!(said.contains("error") && !said.contains("panicked"), "{said}");
    assert!(!said.contains("error: error"), "{said}");
    assert!(output.stdout.is_empty(), "stdout is for data");
}

#[test]
fn mistakes_are_named() {
    let place = Place::new();
    fs::write(place.path().join("empty.yaml"), "").unwrap();
    fs::create_dir(place.path().join("folder")).unwrap();
    let train = |set: &'static str| ["train", "tiny.yaml", "--set", set];
    refused(&place, &["train"], "RECIPE");
    refused(&place, &["frobnicate"], "unrecognized subcommand");
    refused(&place, &["train", "missing.yaml"], "missing.yaml");
    refused(&place, &["train", "empty.yaml"], "empty");
    refused(&place, &["plan", "empty.yaml"], "empty");
    refused(&place, &["train", "tiny.yaml", "--threads", "0"], "--threads");
    refused(&place, &train("train.epoch=3"), "epochs");
    refused(&place, &train("train.epochs=many"), "train.epochs");
    refused(&place, &train("data.train=no/such/file"), "no/such/file");
    refused(&place, &train("data.train=folder"), "folder");
    refused(&place, &train("model.layers.0.Conv2D.kernel_size=99"), "does not fit");
    refused(&place, &train("model.layers.5.Dense.units=3"), "units");
    refused(&place, &["resume", "no-such-run"], "there is no run `no-such-run`");
    refused(&place, &["resume", "folder"], "is not a run");
    refused(&place, &["resume", "tiny.yaml"], "`tiny.yaml` is a file");
    refused(&place, &train("output.dir=tiny.yaml"), "is a file, where a folder");
    refused(&place, &["plan", "tiny.yaml", "--set", "output.dir=tiny.yaml"], "--set output.dir");
    refused(&place, &train("data.train=no/such/file"), "start at the current directory");
    refused(&place, &train("data.train=\"no\\e[31mred\""), "`no·[31mred`");
    let nowhere = train("data={train: no1, validation: no2, test: no3}");
    for said in ["no1", "no2", "no3", "3 mistakes"] {
        refused(&place, &nowhere, said);
    }
    let large = "model={layers: [Flatten, {Dense: {units: 1000000}}, {Dense: {units: 10}}]}";
    let limited = "train={shards: 1000, batch: 1000, optimizer: adam}";
    refused(&place, &["train", "tiny.yaml", "--set", large, "--set", limited], "of memory, but");
    refused(&place, &["evaluate", "no-such-run", "--data", "digits"], "there is no run");
    assert!(!place.path().join("runs").exists(), "a refused recipe leaves nothing behind");
}

#[test]
fn steps_that_name_what_is_not_there_are_all_told_of_with_their_lines() {
    let place = Place::new();
    let setup = "pool: {provider: ssh, hosts: [nowhere]}\nsetup:\n  - run: 'true'\n    \
                 env: {A: '${env:NO_SUCH_VARIABLE_3}'}\n  - {copy: no/such/file, to: ~/x}\n";
    let text = std::fs::read_to_string(place.path().join("tiny.yaml")).unwrap();
    std::fs::write(place.path().join("steps.yaml"), setup.to_owned() + &text).unwrap();
    for said in [
        "steps.yaml:3:",
        "step 1: the recipe refers to `${env:NO_SUCH_VARIABLE_3}`",
        "steps.yaml:5:",
        "step 2: `no/such/file` cannot be read",
        "2 mistakes",
    ] {
        refused(&place, &["train", "steps.yaml"], said);
    }
    assert!(!place.path().join("runs").exists(), "a refused recipe leaves nothing behind");
}

#[test]
fn mistakes_in_a_tables_columns_stand_where_the_recipe_has_them() {
    let place = Place::new();
    fs::write(place.path().join("houses.csv"), "id,colour,rooms,price\n1,red,2,3\n2,blue,4,5\n")
        .unwrap();
    let text = "name: houses\ndata:\n  train: houses.csv\n  table:\n    label: prise\n    \
                target: number\n    drop: [id, Colour]\n    one_hot: [clour]\n\
                model: {preset: mlp}\n";
    fs::write(place.path().join("houses.yaml"), text).unwrap();
    for command in ["plan", "train"] {
        let said = talk(&place.run(&[command, "houses.yaml"]));
        for expect in [
            "houses.yaml:5:12\n",
            "5 |     label: prise\n   |            ^^^^^\n",
            "did you mean `price`?",
            "houses.yaml:7:16\n",
            "houses.yaml:8:15\n",
            "3 mistakes in houses.yaml",
        ] {
            assert!(said.contains(expect), "{expect:?} is missing in {said}");
        }
    }
    // Told once where the recipe alone shows it, and where a label is missing.
    let twice = "data={train: houses.csv, format: csv, table: {label: price, drop: [price]}}";
    refused(&place, &["plan", "houses.yaml", "--set", twice], "1 mistake in");
    let none = "data={train: houses.csv, format: csv}";
    refused(&place, &["plan", "houses.yaml", "--set", none], "1 mistake in");
    let delimiter = "data.table={label: id, delimiter: ab}";
    refused(&place, &["plan", "houses.yaml", "--set", delimiter], "1 mistake in");
}

#[test]
fn data_that_is_no_file_is_named_as_what_it_is() {
    let place = Place::new();
    let train = |set: &'static str| ["train", "tiny.yaml", "--set", set];
    let url = "data.train=https://a.org/x.csv";
    refused(&place, &train(url), "`https://a.org/x.csv` is a URL");
    refused(&place, &train(url), "download it first, such as with `curl -fLO");
    refused(&place, &train("data.test=s3://bucket/x"), "with that store's own tool");
    refused(&place, &train("data.train=/dev/stdin"), "`/dev/stdin` is a pipe or a device");
    refused(&place, &train("data.train='-'"), "write it to a file first");
    refused(&place, &train("output.dir=s3://bucket/runs"), "`output.dir` is a URL");
}

#[test]
fn a_network_is_not_asked_what_it_cannot_answer() {
    let place = Place::new();
    let trained = place.run(&["train", "tiny.yaml", "--set", "train.epochs=1"]);
    assert!(trained.status.success(), "{}", talk(&trained));
    let run = place.only_run();
    let run = run.to_str().unwrap();
    refused(&place, &["evaluate", run, "--data", "no/such/data"], "no/such/data");
    let model = place.path().join(run).join("model.safetensors");
    let whole = fs::read(&model).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    fs::write(&model, flipped).unwrap();
    refused(&place, &["evaluate", run, "--data", "digits"], "changed or damaged");
    refused(&place, &["evaluate", run, "--data", "digits"], "hint: the run's checkpoints may be");
    place.json(&["evaluate", run, "--data", "digits", "--checkpoint", "last", "--json"], 0);
    fs::write(&model, whole).unwrap();

    // One CIFAR-10 record: 32×32×3, label 3.
    let mut record = vec![0u8; 3073];
    record[0] = 3;
    fs::write(place.path().join("test_batch.bin"), record).unwrap();
    refused(
        &place,
        &["evaluate", run, "--data", "test_batch.bin"],
        "holds examples of 32×32×3, but the network takes 28×28×1",
    );

    fs::write(format!("{run}/model.yaml"), "version: 1\nname: 3,\n").unwrap();
    refused(&place, &["evaluate", run, "--data", "digits"], "line 2");
}

#[test]
fn help_version_schema_and_plan_print_data() {
    let place = Place::new();
    for (arguments, expect) in [
        (&["--help"][..], "130"),
        (&["train", "--help"], "--set train.epochs=3"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["schema"], "\"$schema\""),
        (&["plan", "tiny.yaml"], "Conv2D"),
    ] {
        let output = place.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", talk(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(expect), "{arguments:?}: {text}");
    }
    let plan = place.json(&["plan", "tiny.yaml", "--json"], 0);
    assert_eq!(plan["recipe"]["train"]["optimizer"]["sgd"]["learning_rate"], 0.05);
    assert!(plan["memory_bytes"].as_u64() > Some(100_000));
    assert_eq!((&plan["data"]["train"], &plan["data"]["test"]), (&420.into(), &120.into()));
    assert!(!place.path().join("runs").exists());
}

#[test]
fn what_cannot_be_printed_is_no_failure_of_a_run() {
    let place = Place::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = place.command(&["schema"]).stdout(full).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = talk(&output);
    assert!(said.contains("cannot write to stdout: ") && !said.contains("resume"), "{said}");
}

#[test]
fn a_run_whose_events_were_deleted_tells_what_is_left() {
    let place = Place::new();
    let report = place.json(&["train", "tiny.yaml", "--json"], 0);
    let run = place.only_run();
    fs::remove_file(run.join("events.jsonl")).unwrap();
    let status = place.json(&["status", "--json"], 0);
    assert_eq!((&status["state"], &status["events_missing"]), (&"completed".into(), &true.into()));
    assert_eq!((&status["saved_step"], &status["step"]), (&report["steps"], &report["steps"]));
    assert_eq!(status["accuracy"], report["accuracy"]);
    let said = String::from_utf8(place.run(&["runs"]).stdout).unwrap();
    assert!(said.contains("completed (events missing)"), "{said}");
    let audit = place.run(&["audit", run.to_str().unwrap()]);
    assert_eq!(audit.status.code(), Some(3));
    let audit = String::from_utf8(audit.stdout).unwrap();
    assert!(audit.contains("\nsteps ") && !audit.contains("/0"), "{audit}");
}

#[test]
fn workers_without_a_shard_are_warned_of() {
    let place = Place::new();
    let set = ["plan", "tiny.yaml", "--set", "pool.workers=2000"];
    let plan = place.run(&set);
    assert!(plan.status.success(), "{}", talk(&plan));
    let plan = String::from_utf8(plan.stdout).unwrap();
    let expect = "warning     1,992 of 2,000 workers would have nothing to do, because \
                  `train.shards` is 8; use at most 8 workers, or more shards";
    assert!(plan.contains(expect), "{plan}");
    let json = |workers: &str| {
        let set = format!("pool.workers={workers}");
        place.json(&["plan", "tiny.yaml", "--set", &set, "--json"], 0)["workers_idle"].clone()
    };
    assert_eq!((json("2000"), json("8"), json("1")), (1992.into(), 0.into(), 0.into()));
    let nine = place.run(&["train", "tiny.yaml", "--set", "train.epochs=1", "--workers", "9"]);
    assert!(nine.status.success(), "{}", talk(&nine));
    assert!(talk(&nine).contains("warning: 1 of 9 workers would have nothing"), "{}", talk(&nine));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::new();
    let mut child =
        place.command(&["schema"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", talk(&output));
}
