//! What a new user does first: recipes from anywhere, tables of one's own, data from elsewhere.

mod binary;

use binary::{Place, talk};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Two classes by the sign of x + y, in a grid.
fn rows() -> String {
    let row = |i: i32| {
        let (x, y) = (i % 20 - 10, i / 20 - 5);
        format!("{x},{y},{}\n", if x + y > 0 { "over" } else { "under" })
    };
    format!("x,y,side\n{}", (0..200).map(row).collect::<String>())
}

const SIDES: &str = "name: sides\ndata:\n  train: sides.csv\n  table: {label: side}\n\
                     model: {layers: [{Dense: {units: 2}}]}\n\
                     train: {epochs: 2, batch: 20, shards: 2}\n";

/// A folder `recipes` with a recipe and its data, in a place of which it is no part.
fn recipe_elsewhere(place: &Place) {
    let folder = place.path().join("elsewhere/recipes");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("sides.yaml"), SIDES).unwrap();
    fs::write(folder.join("sides.csv"), rows()).unwrap();
}

#[track_caller]
fn good(output: Output) -> Output {
    assert!(output.status.success(), "{}", talk(&output));
    output
}

fn with_input(mut command: Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn data_is_found_beside_the_recipe_and_again_from_anywhere() {
    let place = Place::new();
    recipe_elsewhere(&place);
    let report = place.json(&["train", "elsewhere/recipes/sides.yaml", "--json"], 0);
    let run = place.only_run();
    // As if it had been stopped: it goes on from the checkpoint of epoch 2, from another folder.
    let more = ["train", "elsewhere/recipes/sides.yaml", "--set", "train.epochs=4", "--json"];
    let expect = place.json(&more, 0)["weights_sha256"].clone();
    assert_ne!(expect, report["weights_sha256"]);
    let halfway = place.path().join("halfway");
    let set = format!("output.dir={}", halfway.display());
    let stop = ["train", "elsewhere/recipes/sides.yaml", "--set", "train.epochs=4", "--set", &set];
    good(place.run(&stop));
    let run_there = fs::read_dir(&halfway).unwrap().next().unwrap().unwrap().path();
    // Back to a run that has not begun: what a stop before the first checkpoint leaves.
    for name in ["report.json", "model.yaml", "model.safetensors"] {
        fs::remove_file(run_there.join(name)).unwrap();
    }
    fs::remove_dir_all(run_there.join("checkpoints")).unwrap();
    fs::create_dir(run_there.join("checkpoints")).unwrap();
    let mut resume = place.command(&["resume", run_there.to_str().unwrap(), "--json"]);
    let resumed = good(resume.current_dir("/").output().unwrap());
    let resumed: Value = serde_json::from_slice(&resumed.stdout).unwrap();
    assert_eq!(resumed["weights_sha256"], expect);
    drop(run);
    // What is at the current directory comes first.
    fs::write(place.path().join("sides.csv"), rows().replace("over", "above")).unwrap();
    let report = place.json(&["train", "elsewhere/recipes/sides.yaml", "--json"], 0);
    let classes = report["per_class"].to_string();
    assert!(classes.contains("above"), "{classes}");
}

#[test]
fn a_recipe_may_come_from_standard_input() {
    let place = Place::new();
    fs::write(place.path().join("sides.csv"), rows()).unwrap();
    for name in ["-", "/dev/stdin"] {
        let plan = good(with_input(place.command(&["plan", name]), SIDES));
        assert!(String::from_utf8_lossy(&plan.stdout).contains("sides.csv"), "{}", talk(&plan));
    }
    let train = ["train", "-", "--workers", "2", "--json"];
    let trained = good(with_input(place.command(&train), SIDES));
    let trained: Value = serde_json::from_slice(&trained.stdout).unwrap();
    assert_eq!(trained["outcome"], "completed");
    let wrong = with_input(place.command(&["train", "-"]), &SIDES.replace("epochs", "epcohs"));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(talk(&wrong).contains("--> <stdin>:6:9"), "{}", talk(&wrong));
    let none = with_input(place.command(&["plan", "-"]), "");
    assert!(talk(&none).contains("the recipe is empty"), "{}", talk(&none));
    // The process that is left behind reads the same.
    let wrong = SIDES.replace("label: side", "label: sdie");
    let wrong = with_input(place.command(&["train", "-", "--detach"]), &wrong);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(talk(&wrong).contains("did you mean `side`?"), "{}", talk(&wrong));
}

/// Without root's right to write where no one may.
fn without_privilege(command: &mut Command) {
    const DAC_OVERRIDE: libc::c_ulong = 1;
    let drop = || {
        // SAFETY: only system calls, which may be made after a fork; where they are refused there was
        // no such right.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, DAC_OVERRIDE, 0, 0, 0) };
        Ok(())
    };
    // SAFETY: `drop` only makes calls that may be made between fork and exec.
    unsafe { command.pre_exec(drop) };
}

#[test]
fn a_folder_that_cannot_be_written_is_said_to_be_output_dir() {
    let place = Place::new();
    let closed = place.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("tiny.yaml"), binary::RECIPE).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let refused = |arguments: &[&str], folder: &Path, expect: &[&str]| {
        let mut command = place.command(arguments);
        without_privilege(&mut command);
        let output = command.current_dir(folder).output().unwrap();
        let said = talk(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        for expect in expect {
            assert!(said.contains(expect), "{expect:?} is missing in {said}");
        }
    };
    let inside = closed.display().to_string();
    for command in ["plan", "train"] {
        let default = ["`runs`, which `output.dir` is where the recipe does not set it", &inside];
        refused(&[command, "tiny.yaml"], &closed, &default);
        let set = ["--set output.dir=closed/a/b", "`closed/a/b`", &inside, "hint: name a folder"];
        let arguments = [command, "tiny.yaml", "--set", "output.dir=closed/a/b"];
        refused(&arguments, place.path(), &set);
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a table, a recipe for it, plans and trains; the recipe and its plan.
#[track_caller]
fn begun(place: &Place, table: &str, text: &str, words: &[&str]) -> (String, Value) {
    fs::write(place.path().join(table), text).unwrap();
    good(place.run(&[&["init", table], words].concat()));
    let name = format!("{}.yaml", table.split('.').next().unwrap());
    let recipe = fs::read_to_string(place.path().join(&name)).unwrap();
    let plan = place.json(&["plan", &name, "--json"], 0);
    let trained = place.json(&["train", &name, "--set", "train.epochs=2", "--json"], 0);
    assert_eq!(trained["outcome"], "completed", "{recipe}");
    (recipe, plan)
}

fn words(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[test]
fn a_recipe_for_a_table_of_ones_own_says_what_it_guessed() {
    let place = Place::new();
    let row = |i: u32| {
        let colour = ["red", "green", "blue"][i as usize % 3];
        let rooms = if i.is_multiple_of(10) { String::new() } else { (i % 7).to_string() };
        let (size, price) = (i * 37 % 100, f64::from(i * 37 % 100) * 2.5 + f64::from(i % 7));
        format!("{i};n{i};{colour};{rooms};{size};here;{price}\n")
    };
    let rows: String = (1..=120).map(row).collect();
    let text = format!("id;street;colour;rooms;size;town;price\n{rows}");
    let (recipe, plan) = begun(&place, "houses.csv", &text, &[]);
    let table = &plan["recipe"]["data"]["table"];
    assert_eq!((&table["label"], &table["target"]), (&"price".into(), &"number".into()));
    assert_eq!((&table["delimiter"], &table["missing"]), (&";".into(), &"mean".into()));
    assert_eq!(words(&table["drop"]), ["id", "street", "town"]);
    assert_eq!(words(&table["one_hot"]), ["colour"]);
    assert_eq!(plan["recipe"]["train"]["loss"], "mse");
    for said in [
        "its 120 rows",
        "# numbers the rows",
        "# another text in every row",
        "# the same in every row",
        "Missing: `rooms` (12)",
        "codes rather than amounts",
        "`planaria train houses.yaml` trains",
    ] {
        assert!(recipe.contains(said), "{said:?} is missing in {recipe}");
    }
    let again = place.run(&["init", "houses.csv"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(talk(&again).contains("`houses.yaml` is there already"), "{}", talk(&again));
    let label = ["init", "houses.csv", "--label", "colour", "--force"];
    assert!(
        talk(&good(place.run(&label))).contains("label `colour` (as `--label` says): 3 classes")
    );
    let printed = good(place.run(&["init", "houses.csv", "--label", "colour", "-o", "-"]));
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("label: colour") && printed.contains("{units: 3}"), "{printed}");
    let mistyped = place.run(&["init", "houses.csv", "--label", "colur", "-o", "-"]);
    assert!(talk(&mistyped).contains("did you mean `colour`?"), "{}", talk(&mistyped));
    let unknown = place.run(&["init", "houses.csv", "--label", "99", "-o", "-"]);
    assert!(talk(&unknown).contains("7 columns: `id`, `street`, `colour`"), "{}", talk(&unknown));
    let last = good(place.run(&["init", "houses.csv", "--label", "-3", "-o", "-"]));
    assert!(String::from_utf8_lossy(&last.stdout).contains("label: size"), "{}", talk(&last));
    let texts = place.run(&["init", "houses.csv", "--label", "street", "-o", "-"]);
    assert_eq!(texts.status.code(), Some(2));
    assert!(talk(&texts).contains("those are no classes"), "{}", talk(&texts));
}

#[test]
fn sparse_tables_get_recipes_and_what_is_no_table_is_refused() {
    let place = Place::new();
    let rows: String = (0..60).map(|i| format!("{} {}:1 4:0.5\n", i % 2, i % 3 + 1)).collect();
    let (recipe, plan) = begun(&place, "rows.libsvm", &rows, &[]);
    assert!(recipe.contains("its 60 rows") && recipe.contains("{units: 2}"), "{recipe}");
    assert_eq!(plan["recipe"]["data"]["format"], "libsvm");
    fs::write(place.path().join("a.png"), b"\x89PNG\r\n\"x\"y").unwrap();
    for (arguments, said) in [
        (&["init", "a.png"][..], "takes tables, and folders of idx or CIFAR-10 files"),
        (&["init", "nowhere.csv"], "`nowhere.csv` does not exist"),
        (&["init", "https://a.org/x.csv"], "download it first"),
        (&["init", "rows.libsvm", "--label", "x", "--force"], "is no table with columns"),
        (&["init", "rows.libsvm", "-o", "no/such/folder/a.yaml"], "`-o FILE` writes it elsewhere"),
    ] {
        let refused = place.run(arguments);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(talk(&refused).contains(said), "{arguments:?}: {}", talk(&refused));
    }
}

#[test]
fn tables_without_a_header_and_with_odd_names_get_recipes_too() {
    let place = Place::new();
    // Without a header, and a class that few rows have: no split must keep it from being learned.
    let row = |i: u32| {
        let kind = if i < 2 { "rare" } else { ["setosa", "virginica"][i as usize % 2] };
        format!("{}.5,{},{kind}\n", i % 9, i % 4)
    };
    let rows: String = (0..60).map(row).collect();
    let (recipe, plan) = begun(&place, "flowers.data", &rows, &[]);
    assert_eq!(plan["recipe"]["data"]["table"]["header"], false);
    assert_eq!(plan["recipe"]["data"]["table"]["label"], 3);
    assert!(recipe.contains("{units: 3}"), "{recipe}");
    // Names that YAML would take for something else, twice the same, and a label in front.
    let row = |i: u32| format!("{},{},{},{}\n", i % 2, i * 7 % 11, i % 5, i * 3 % 13);
    let rows: String = (0..50).map(row).collect();
    let text = format!("label,2019,\"a: b\",\"a: b\"\n{rows}");
    let (_, plan) = begun(&place, "Odd names!.csv", &text, &[]);
    assert_eq!(plan["recipe"]["name"], "odd-names");
    assert_eq!(plan["recipe"]["data"]["table"]["label"], "label");
    // A few rows are all learned from.
    let (recipe, plan) = begun(&place, "small.csv", "x,y\n1,a\n2,b\n2,a\n4,b\n", &[]);
    assert!(recipe.contains("validation: null"), "{recipe}");
    assert_eq!(plan["data"]["train"], 4);
    for (text, said) in [
        ("a\n1\n2\n", "has one column"),
        ("a,b\n1,2\n", "`b` of `none.csv` is the same in every row"),
        ("k,b\nx1,1\nx2,2\nx3,1\n", "another text in every row"),
    ] {
        fs::write(place.path().join("none.csv"), text).unwrap();
        let refused = place.run(&["init", "none.csv"]);
        assert_eq!(refused.status.code(), Some(2), "{text}");
        assert!(talk(&refused).contains(said), "{}", talk(&refused));
        assert!(!place.path().join("none.yaml").exists());
    }
}

/// Serves the files of a folder on the loopback, whole, as long as this process lives; its URL.
fn serve(folder: std::path::PathBuf) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            for _ in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {}
            let name = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/');
            let body = fs::read(folder.join(name)).unwrap_or_default();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            // A client that goes away is its own affair.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
        }
    });
    url
}

#[test]
fn a_public_set_is_fetched_described_and_planned() {
    let place = Place::new();
    let list = good(place.run(&["data", "list"]));
    let list = String::from_utf8(list.stdout).unwrap();
    assert!(list.contains("cifar10") && list.contains("11.6 MB"), "{list}");
    let unknown = place.run(&["data", "get", "minst"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(talk(&unknown).contains("did you mean `mnist`?"), "{}", talk(&unknown));
    // No program to fetch with.
    let mut without = place.command(&["data", "get", "mnist"]);
    let without = without.env("PATH", place.path()).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(talk(&without).contains("neither is on this machine"), "{}", talk(&without));
    let Some(folder) = real_data("mnist") else { return };
    let url = serve(folder);
    let got = good(place.run(&["data", "get", "mnist", "--from", &url]));
    assert_eq!(String::from_utf8_lossy(&got.stdout), "data/mnist\n");
    assert!(talk(&got).contains("data/mnist has mnist: 4 files"), "{}", talk(&got));
    let again = good(place.run(&["data", "get", "mnist", "--from", "http://127.0.0.1:9"]));
    assert!(talk(&again).contains("mnist is in data/mnist already"), "{}", talk(&again));
    good(place.run(&["init", "data/mnist"]));
    let plan = place.json(&["plan", "data/mnist.yaml", "--json"], 0);
    assert_eq!((&plan["data"]["train"], &plan["data"]["test"]), (&54_000.into(), &10_000.into()));
    assert_eq!(plan["recipe"]["model"]["layers"].as_array().map(Vec::len), Some(7));
}

#[test]
fn nothing_goes_on_fetching_for_a_command_that_was_killed() {
    let is_here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_here("curl") && !is_here("wget") {
        return;
    }
    let place = Place::new();
    // A server that takes the request and answers nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut command = place.command(&["data", "get", "mnist", "--from", &url]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30))).unwrap();
    let mut request = Vec::new();
    let closed = std::io::Read::read_to_end(&mut stream, &mut request);
    assert!(closed.is_ok(), "the program that fetches has ended too: {closed:?}");
}

/// The folder of real data `name`, in `PLANARIA_DATA` or `../shared/data` beside the repository.
fn real_data(name: &str) -> Option<std::path::PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("PLANARIA_DATA")
        .map_or_else(|| workspace.join("../shared/data"), Into::into)
        .join(name);
    let found = folder.canonicalize().ok();
    let is_required = std::env::var_os("PLANARIA_REQUIRE_DATA").is_some();
    assert!(found.is_some() || !is_required, "`{}` is required here", folder.display());
    if found.is_none() {
        #[expect(clippy::disallowed_macros, reason = "a test that is skipped says so")]
        {
            println!("skipped: needs {name} in shared/data");
        }
    }
    found
}

#[test]
fn recipes_for_real_data_train() {
    let place = Place::new();
    if let Some(folder) = real_data("credit-default") {
        let table = folder.join("UCI_Credit_Card.csv");
        good(place.run(&["init", table.to_str().unwrap(), "-o", "credit.yaml"]));
        let plan = place.json(&["plan", "credit.yaml", "--json"], 0);
        let section = &plan["recipe"]["data"]["table"];
        assert_eq!(section["label"], "default.payment.next.month");
        assert_eq!((words(&section["drop"]), words(&section["one_hot"])), (vec!["ID"], vec![]));
        let trained = ["train", "credit.yaml", "--set", "train.epochs=1", "--json"];
        let trained = place.json(&trained, 0);
        assert!(trained["accuracy"].as_f64() > Some(0.75), "{}", trained["accuracy"]);
    }
    for (name, layers) in [("mnist", 7), ("cifar-10-binary", 7)] {
        let Some(folder) = real_data(name) else { continue };
        let file = format!("{name}.yaml");
        good(place.run(&["init", folder.to_str().unwrap(), "-o", &file]));
        let plan = place.json(&["plan", &file, "--json"], 0);
        assert_eq!(plan["layers"].as_array().map(Vec::len), Some(layers), "{}", plan["layers"]);
        assert_eq!(plan["data"]["test"], 10_000);
    }
}
