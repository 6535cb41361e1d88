//! Every kind of mistake: where it is found, what is said, and what is hinted.

use planaria_recipe::{DataFacts, Diagnostics, Finding, Shape, Source};

const IMAGES: DataFacts = DataFacts {
    input: Shape::Image { height: 28, width: 28, channels: 1 },
    classes: Some(10),
    examples: 900,
};

fn mistakes(text: &str, sets: &[&str]) -> Option<Diagnostics> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    Source::parse_and_plan("r.yaml", text.as_bytes(), &sets, |_| Ok(IMAGES)).err()
}

/// Mistakes as `line:column message // hint`, one to a line.
fn summary(text: &str, sets: &[&str]) -> String {
    let list = mistakes(text, sets).map(|d| d.list).unwrap_or_default();
    let line = |d: &planaria_recipe::Diagnostic| {
        let hint = d.hint.as_ref().map(|h| format!(" // {h}")).unwrap_or_default();
        format!("{}:{} {}{hint}", d.line, d.column, d.message)
    };
    list.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(summary(text, &[]), expect, "for\n{text}");
}

/// A sound recipe with one section replaced.
#[track_caller]
fn check_section(section: &str, expect: &str) {
    let key = section.split(':').next().unwrap_or_default();
    let sound = ["name: a", "data: {train: digits}", "model: {preset: mlp}", "train: {}"];
    let mut lines: Vec<&str> = vec![section];
    lines.extend(sound.iter().filter(|l| !l.starts_with(&format!("{key}:"))));
    check(&lines.join("\n"), expect);
}

#[track_caller]
fn check_layers(layers: &str, expect: &str) {
    check_section(&format!("model:\n  layers:\n{layers}"), expect);
}

#[test]
fn mistakes_are_counted_where_they_were_written() {
    let file = "name: a\ndata: {train: digits}\nmodel: {preset: mlp}\ntrain: {}\n";
    let last = |text: &str, sets: &[&str]| {
        let said = mistakes(text, sets).expect("there are some").to_string();
        said.lines().last().unwrap_or_default().to_owned()
    };
    assert_eq!(last(file, &["train.epochs=0"]), "1 mistake in `--set`");
    let both = last(&format!("{file}sed: 1\n"), &["train.epochs=0", "train.batch=x"]);
    assert_eq!(both, "1 mistake in r.yaml, 2 mistakes in `--set`");
}

#[test]
fn rendered_text_shows_the_place_and_the_hint() {
    let text = "name: mnist\ndata:\n  train: digits\nmodel:\n  preset: mlp\ntrain:\n  optimiser: sgd\n  epochs: ten\n";
    let expect = "\
error: unknown key `optimiser` in `train`
  --> r.yaml:7:3
   |
 7 |   optimiser: sgd
   |   ^^^^^^^^^

hint: did you mean `optimizer`?

error: `train.epochs` must be a whole number, but is the text `ten`
  --> r.yaml:8:11
   |
 8 |   epochs: ten
   |           ^^^

2 mistakes in r.yaml";
    assert_eq!(mistakes(text, &[]).map(|d| d.to_string()).as_deref(), Some(expect));
}

#[test]
fn keys() {
    check_section(
        "train: {epoch: 3}",
        "1:9 unknown key `epoch` in `train` // did you mean `epochs`?",
    );
    check_section(
        "train: {lr: 3}",
        "1:9 unknown key `lr` in `train` // known keys: `epochs`, `batch`, `shards`, `loss`, `label_smoothing`, `optimizer`, `schedule`, `warmup_steps`, `clip_norm`, `early_stopping`, `l2`, `class_weights`, `method`, `coded`, `redundancy`",
    );
    check_section(
        "train: {optimizer: {sgd: {lr: 3}}}",
        "1:27 unknown key `lr` in `train.optimizer.sgd` // did you mean `learning_rate`?",
    );
    check_section(
        "train: {learning_rate: 0.1}",
        "1:9 unknown key `learning_rate` in `train` // write `optimizer: {sgd: {learning_rate: …}}`",
    );
    check_section("epochs: 3", "1:1 unknown key `epochs` // `epochs` belongs in `train`");
    check_section(
        "data: {}",
        "1:1 missing key `train` in `data` // add `train: …`: `digits` (drawn from the seed), or a file or folder of examples, relative to the current directory, or else to the recipe's folder",
    );
    check_section(
        "data: {trian: digits}",
        "1:8 unknown key `trian` in `data` // did you mean `train`?",
    );
    check_section(
        "train:\n  epochs: 1\n  batch: 4\n  epochs: 2",
        "4:3 duplicate key `epochs` // it is already set at line 2, column 3; keep one of them",
    );
    check_layers(
        "    - {Flatten: {x: 1}}\n    - {Dense: {units: 10}}",
        "3:18 unknown key `x` in layer 1 `Flatten` // layer 1 `Flatten` has no options",
    );
}

#[test]
fn types_and_ranges() {
    check_section(
        "name: 3",
        "1:7 `name` must be text, but is 3 // put it in quotes to make it text",
    );
    check_section(
        "name: my/run",
        "1:7 `name` names a folder, but holds `/` // use letters, digits, `-`, `_` and `.`, such as `mnist-mlp`",
    );
    check_section(
        "name: ..",
        "1:7 `name` names a folder, but starts with a dot // use letters, digits, `-`, `_` and `.`, such as `mnist-mlp`",
    );
    check_section(
        "seed: -1",
        "1:7 `seed` must be a whole number from 0 to 18446744073709551615, but is -1",
    );
    check_section("seed: 18446744073709551615", "");
    check_section(
        "seed: 18446744073709551616",
        "1:7 `seed` must be a whole number from 0 to 18446744073709551615, but is 18446744073709551616",
    );
    check_section(
        "train: {epochs: 0}",
        "1:17 `train.epochs` must be a whole number from 1 to 1000000, but is 0",
    );
    check_section(
        "train: {epochs: 3.0}",
        "1:17 `train.epochs` must be a whole number, but is 3.0 // write `3`",
    );
    check_section(
        "train: {epochs: \"3\"}",
        "1:17 `train.epochs` must be a whole number, but is the text `3` // write `3`, without quotes or underscores",
    );
    check_section("train: {epochs: }", "1:9 `train.epochs` must be a whole number, but is empty");
    check_section(
        "train: {clip_norm: .nan}",
        "1:20 `train.clip_norm` must be a finite number, but is NaN",
    );
    check_section(
        "train: {clip_norm: 1e300}",
        "1:20 `train.clip_norm` must be a finite number, but is 1e300",
    );
    check_section(
        "train: {clip_norm: 0}",
        "1:20 `train.clip_norm` must be above 0 // leave it out for no limit",
    );
    check_section("train: {clip_norm: 1e-3}", "");
    check_section(
        "train: {optimizer: {sgd: {nesterov: yes}}}",
        "1:37 `train.optimizer.sgd.nesterov` must be `true` or `false`, but is the text `yes` // write `true`",
    );
    check_section(
        "train:",
        "1:1 `train` must be a mapping, but is empty // indent its keys below it, or leave it out",
    );
    check_section("train: [1]", "1:8 `train` must be a mapping, but is a list");
    check_layers(
        "    - Flatten\n    - {Dense: {units: 0}}",
        "4:23 layer 2 `Dense` › `units` must be a whole number from 1 to 1000000, but is 0",
    );
    check_layers(
        "    - {Conv2D: {filters: 1, kernel_size: [3]}}",
        "3:42 layer 1 `Conv2D` › `kernel_size` must be a list of 2 whole numbers, but has 1",
    );
    check_layers(
        "    - {Conv2D: {filters: 1, kernel_size: [3, 0]}}",
        "3:46 layer 1 `Conv2D` › `kernel_size.1` must be a whole number from 1 to 4096, but is 0",
    );
    check_layers(
        "    - {Conv2D: {filters: 1, kernel_size: big}}",
        "3:42 layer 1 `Conv2D` › `kernel_size` must be a whole number or a list of 2 whole numbers, but is the text `big`",
    );
    check_section(
        "model: {layers: Flatten}",
        "1:17 `model.layers` must be a list, but is the text `Flatten` // put it in brackets: `[…]`",
    );
}

#[test]
fn names() {
    check_section(
        "train: {loss: mae}",
        "1:15 unknown value `mae` for `train.loss` // there is no such loss; the losses are \
         `cross_entropy`, `binary_cross_entropy`, `mse`, `hinge`, `squared_hinge`; reports have the \
         mean absolute error of every run that learns numbers",
    );
    check_section(
        "train: {loss: smooth_l1}",
        "1:15 unknown value `smooth_l1` for `train.loss` // there is no such loss; the losses are \
         `cross_entropy`, `binary_cross_entropy`, `mse`, `hinge`, `squared_hinge`",
    );
    check_section(
        "train: {loss: crossentropy}",
        "1:15 unknown value `crossentropy` for `train.loss` // did you mean `cross_entropy`?",
    );
    check_section(
        "train: {optimizer: adma}",
        "1:20 unknown value `adma` for `train.optimizer` // did you mean `adam`?",
    );
    check_section(
        "train: {optimizer: {sdg: {}}}",
        "1:21 unknown value `sdg` for `train.optimizer` // did you mean `sgd`?",
    );
    check_section(
        "train: {optimizer: {sgd: {}, adam: {}}}",
        "1:30 `train.optimizer` must name one optimizer, but names 2: `sgd`, `adam` // keep one of them",
    );
    check_section(
        "train: {optimizer: {}}",
        "1:20 `train.optimizer` has no name // known names: `sgd`, `adam`, `adamw`, `rmsprop`",
    );
    check_section(
        "train: {optimizer: 3}",
        "1:20 `train.optimizer` must be one of `sgd`, `adam`, `adamw`, `rmsprop`, but is 3",
    );
    check_section(
        "train: {schedule: {constant: {}}}",
        "1:20 `constant` has no options // write `constant`",
    );
    check_section("train: {optimizer: adam, schedule: cosine}", "");
    check_section(
        "model: {preset: resnet21}",
        "1:17 unknown value `resnet21` for `model.preset` // did you mean `resnet20`?",
    );
    check_layers(
        "    - flatten\n    - {Dense: {units: 10}}",
        "3:7 layer 1: unknown layer `flatten` // did you mean `Flatten`?",
    );
    check_layers(
        "    - Dense",
        "3:7 layer 1: `Dense` needs `units` // write `{Dense: {units: …}}`",
    );
    check_layers(
        "    - Activation",
        "3:7 layer 1: `Activation` needs a value // write `{Activation: …}`",
    );
    check_layers(
        "    - Flatten:\n    - Dense:\n      units: 10",
        "5:7 layer 2: `units` stands beside `Dense`, not in it // indent the options further than `Dense`",
    );
    check_layers("    - 3", "3:7 layer 1 must be a layer such as `{Dense: {units: 10}}`, but is 3");
    check_layers(
        "    - Flatten: {}\n      Dense: {units: 10}",
        "4:7 layer 1 must name one layer, but names 2: `Flatten`, `Dense` // start each layer with its own `- `",
    );
}

#[test]
fn values_together() {
    check_section(
        "model: {}",
        "1:1 `model` has neither `layers` nor `preset` // list its `layers:`, or write `preset: mlp`",
    );
    check_section(
        "model: {preset: mlp, layers: [Flatten]}",
        "1:17 `model` has both `layers` and `preset` // keep one of them, such as by `--set 'model={preset: resnet20}'`",
    );
    check_section(
        "model: {layers: []}",
        "1:9 `model.layers` is empty // add a layer such as `- {Dense: {units: 10}}`",
    );
    check_section(
        "data: {train: digits, test: 0.5, validation: 0.5}",
        "1:29 test and validation take 1 of the examples // their shares must sum to less than 1, so that something is left to train on",
    );
    check_section(
        "data: {train: digits, test: 2}",
        "1:29 `data.test` must be a share above 0 and below 1, but is 2.0 // write a share such as `0.1`, a path, or `null` for none",
    );
    check_section(
        "data: {train: digits, normalize: {mean: [1, 2], std: [0.5, 0]}}",
        "1:35 `data.normalize.mean` has 2 numbers, but the data has 1 channels // give one for all, or one for each\n1:49 `data.normalize.std` has 2 numbers, but the data has 1 channels // give one for all, or one for each\n1:60 `data.normalize.std` must be above 0, but is 0.0 // values are divided by it",
    );
    check_section(
        "pool: {workers: 8, servers: 0}",
        "1:29 `pool.servers` is 0, but 8 workers need one to hold the parameters // set `servers: 1`, or leave it out",
    );
    check_layers(
        "    - Flatten\n    - {Dropout: {rate: 0.5}}",
        "2:3 the network has no parameters, so there is nothing to train // add a layer such as `- {Dense: {units: 10}}`",
    );
    check_section(
        "train: {loss: mse, label_smoothing: 0.1}",
        "1:37 `train.label_smoothing` works with `loss: cross_entropy` only // leave it out, or change the loss",
    );
    check_section(
        "train: {optimizer: {adam: {beta_1: 1}}}",
        "1:36 `train.optimizer.adam.beta_1` must be below 1",
    );
}

#[test]
fn numbers_of_workers() {
    check_section("pool: {workers: 8}", "");
    check_section("pool: {workers: {min: 2, max: 8}}", "");
    check_section("pool: {workers: {max: 8}}", "");
    check_section(
        "pool: {workers: {min: 0, max: 8}}",
        "1:23 `pool.workers.min` must be a whole number from 1 to 4096, but is 0",
    );
    check_section(
        "pool: {workers: {min: 9, max: 8}}",
        "1:23 `pool.workers.min` is 9, but `max` is only 8 // set `min` to 8 or less, or `max` to 9 or more",
    );
    check_section(
        "pool: {workers: {min: 2, maxx: 8}}",
        "1:26 unknown key `maxx` in `pool.workers` // did you mean `max`?",
    );
    check_section(
        "pool: {workers: {min: 2}}",
        "1:8 missing key `max` in `pool.workers` // add `max: …`: Workers to start with, and to have again when one is lost",
    );
    check_section(
        "pool: {workers: 0}",
        "1:17 `pool.workers` must be a whole number from 1 to 4096, but is 0",
    );
    check_section(
        "pool: {workers: many}",
        "1:17 `pool.workers` must be a whole number or a mapping, but is the text `many`",
    );
    let sound = "name: a\ndata: {train: digits}\nmodel: {preset: mlp}";
    assert_eq!(summary(sound, &["pool.workers={min: 2, max: 8}"]), "");
    assert_eq!(
        summary(sound, &["pool.workers={min: 3, max: 2}"]),
        "1:20 `pool.workers.min` is 3, but `max` is only 2 // set `min` to 2 or less, or `max` to 3 or more"
    );
}

#[test]
fn shapes() {
    check_layers(
        "    - {MaxPooling2D: {pool_size: 5}}\n    - {Activation: relu}\n    - {Conv2D: {filters: 2, kernel_size: 7}}\n    - {Dense: {units: 10}}",
        "5:8 layer 3 `Conv2D`: kernel 7 does not fit a 5×5 input // make it smaller, or use `padding: same`\n\
         6:8 layer 4 `Dense`: needs a vector but its input is 5×5×2 // put `Flatten` before it",
    );
    check_layers(
        "    - Residual:\n        layers:\n          - Flatten\n          - {Conv2D: {filters: 2, kernel_size: 3}}",
        "6:14 layer 1 `Residual` › layers 2 `Conv2D`: needs an image but its input is a vector of 784",
    );
    check_layers(
        "    - Concat:\n        branches:\n          - []\n          - [{Conv2D: {filters: 2, kernel_size: 29}}]",
        "6:15 layer 1 `Concat` › branch 2 layer 1 `Conv2D`: kernel 29 does not fit a 28×28 input // make it smaller, or use `padding: same`",
    );
    check_layers(
        "    - {Conv2D: {filters: 65536, kernel_size: 4096, padding: same}}\n    - {Dropout: {rate: 0.5}}",
        "3:8 layer 1 `Conv2D`: brings the network to 1099511693312 parameters // at most 2147483648 fit",
    );
    check_layers(
        "    - Flatten\n    - {Dense: {units: 5}}",
        "4:23 class label 9 is outside the 5 output units, which hold labels 0 to 4 // set `units: 10`",
    );
    check(
        "name: a\nmodel: {layers: [Flatten, {Dense: {units: 1}}]}\ndata: {train: digits}\ntrain: {loss: hinge}",
        "2:43 `hinge` with 1 output unit needs labels 0 and 1, but there is label 9 // set `units: 10`, or use `cross_entropy`",
    );
}

#[test]
fn shapes_are_checked_beside_other_mistakes_without_guessing() {
    let tail = "\n    - {Conv2D: {filters: 2, kernel_size: 99}}";
    let misfit = "4:8 layer 2 `Conv2D`: kernel 99 does not fit a 28×28 input // make it smaller, or use `padding: same`";
    check_layers(
        &format!(
            "    - {{Conv2D: {{filters: 2, kernel_size: 3, padding: same, activaton: relu}}}}{tail}"
        ),
        &format!(
            "3:60 unknown key `activaton` in layer 1 `Conv2D` // did you mean `activation`?\n{misfit}"
        ),
    );
    // A mistyped stride changes every shape after it.
    check_layers(
        &format!("    - {{Conv2D: {{filters: 2, kernel_size: 3, stride: 2}}}}{tail}"),
        "3:45 unknown key `stride` in layer 1 `Conv2D` // did you mean `strides`?",
    );
}

#[test]
fn broken_files() {
    check(
        "",
        "1:1 the recipe is empty // start with `name: my-run`, then `data:`, `model:` and `train:`",
    );
    check(
        "# only words\n",
        "1:1 the recipe is empty // start with `name: my-run`, then `data:`, `model:` and `train:`",
    );
    check(
        "- a\n",
        "1:1 a recipe is a mapping of keys, but this is a list // start with `name: my-run`, then `data:`, `model:` and `train:`",
    );
    check(
        "name: x\ntrain:\n\tepochs: 3\n",
        "3:1 a tab in the indentation // YAML is indented with spaces; replace each tab by two spaces",
    );
    check(
        "name: x\n---\nname: y\n",
        "2:1 a second document starts here, but a recipe is one document // remove the `---` and what follows, or make it a file of its own",
    );
    check(
        "name: !x y\n",
        "1:7 tags such as `!x` have no meaning here // remove the tag; quotes make a value text",
    );
    check(
        "data: {<<: {}}\n",
        "1:8 merge keys (`<<`) are not supported // write the keys out, or use an alias for a whole value",
    );
    check(
        "name x\ndata: 3\n",
        "2:5 not valid YAML: mapping values are not allowed in this context // is this line indented too far, or does the line above lack its colon?",
    );
    check("a: &a [*a]\n", "1:8 this alias stands inside what it names");
    check(&"[".repeat(100), "1:65 nested deeper than 64 levels");
    let latin = Source::parse("r.yaml", b"name: x\ndata: \xe9\n", &[]).err().map(|d| d.to_string());
    assert_eq!(
        latin.as_deref(),
        Some(
            "error: the recipe is not UTF-8 text: byte 0xe9\n  --> r.yaml:2:7\n   |\n 2 | data: \u{fffd}\n   |       ^\n\nhint: save the file as UTF-8\n\n1 mistake in r.yaml"
        )
    );
}

#[test]
fn alias_bombs_are_bounded() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 0..40 {
        let of = vec![format!("*a{i}"); 9].join(", ");
        text += &format!("a{}: &a{} [{of}]\n", i + 1, i + 1);
    }
    check(
        &text,
        "5:5 the recipe grows beyond 100000 values here, expanded aliases included // aliases of aliases multiply; write the values out or use fewer",
    );
    check_section("train: {batch: &n 4, shards: *n}", "");
}

#[test]
fn large_files_are_refused_unread() {
    let path = std::env::temp_dir().join(format!("planaria-large-{}.yaml", std::process::id()));
    let file = std::fs::File::create(&path).expect("a writable temporary folder");
    file.set_len(100 << 20).expect("a sparse file");
    let text = Source::load(&path, &[]).err().map(|d| d.to_string()).unwrap_or_default();
    std::fs::remove_file(&path).expect("the file just made");
    assert!(
        text.starts_with("error: the recipe is 100.0 MiB long, but at most 1 MiB is read"),
        "{text}"
    );
    let missing = Source::load(&path, &[]).err().map(|d| d.to_string()).unwrap_or_default();
    assert!(missing.starts_with("error: the recipe cannot be read: No such file"), "{missing}");
}

#[test]
fn many_mistakes_are_counted_and_the_first_shown() {
    let keys: String = (0..300).map(|i| format!("zz{i}: 1\n")).collect();
    let text = mistakes(&keys, &[]).map(|d| d.to_string()).unwrap_or_default();
    assert_eq!(text.matches("error:").count(), 50);
    assert!(text.ends_with("… and 253 more\n\n303 mistakes in r.yaml"), "{text}");
}

#[test]
fn sets() {
    let base = "name: a\ndata: {train: digits}\nmodel: {layers: [Flatten, {Dense: {units: 10}}]}\ntrain: {optimizer: sgd}\n";
    for (set, expect) in [
        ("train.epochs=3", ""),
        ("train.optimizer.sgd.momentum=0.9", ""),
        ("train.schedule.cosine.final_factor=0.1", ""),
        ("data.augment={horizontal_flip: true}", ""),
        ("model.layers.1.Dense.units=12", ""),
        ("model.layers.2.Activation=softmax", ""),
        ("train.epoch=3", "1:7 unknown key `epoch` in `train` // did you mean `epochs`?"),
        ("train.epochs=many", "1:14 `train.epochs` must be a whole number, but is the text `many`"),
        (
            "model.layers.1.Dense.units=5",
            "1:28 class label 9 is outside the 5 output units, which hold labels 0 to 4 // set `units: 10`",
        ),
        (
            "model.layers.9=Flatten",
            "1:14 no item `9` in this list // this list has 2 items, numbered from 0",
        ),
        ("name.first=x", "1:6 `first` cannot be set: the value above it is the text `a`"),
        (
            "train.epochs",
            "1:1 no `=` in this `--set` // write `--set key=value`, such as `--set train.epochs=3`",
        ),
        (
            "train..epochs=3",
            "1:1 an empty key in this `--set` // write `--set key=value`, such as `--set train.epochs=3`",
        ),
        (
            "train.epochs=[1",
            "1:16 not valid YAML: while parsing a flow sequence, expected ',' or ']' // check that every bracket and brace is closed",
        ),
    ] {
        assert_eq!(summary(base, &[set]), expect, "--set {set}");
    }
    let text = mistakes(base, &["train.epoch=3"]).map(|d| d.to_string()).unwrap_or_default();
    assert!(
        text.contains(
            "  --> --set train.epoch=3, column 7\n   |\n 1 | train.epoch=3\n   |       ^^^^^\n"
        ),
        "{text}"
    );
    let source = Source::parse(
        "r.yaml",
        base.as_bytes(),
        &["train.epochs=3".into(), "train.epochs=4".into()],
    );
    assert_eq!(source.map(|s| s.recipe().train.epochs), Ok(4));
}

#[test]
fn callers_attach_mistakes_to_keys() {
    let text = "name: a\ndata:\n  train: nowhere\nmodel: {preset: mlp}\ntrain: {x: 1}\n";
    let survey = |_: &mut planaria_recipe::Recipe| {
        Err(vec![Finding::new("data.train", "no file or folder `nowhere`")])
    };
    let found = Source::parse_and_plan("r.yaml", text.as_bytes(), &[], survey).err();
    let places: Vec<_> = found
        .iter()
        .flat_map(|d| &d.list)
        .map(|d| (d.line, d.column, d.message.as_str()))
        .collect();
    assert_eq!(
        places,
        [(3, 10, "no file or folder `nowhere`"), (5, 9, "unknown key `x` in `train`")]
    );
}

#[test]
fn redundancy() {
    let check = |workers: &str, train: &str, expect: &str| {
        let text = format!(
            "train: {{{train}}}\npool: {{{workers}}}\nname: a\ndata: {{train: digits}}\nmodel: {{preset: mlp}}"
        );
        check(&text, expect);
    };
    check("workers: 3", "redundancy: 2", "");
    check("workers: {min: 1, max: 3}", "redundancy: 2", "");
    // In one process there is no worker to lose.
    check("workers: 1", "redundancy: 2", "");
    check(
        "workers: 2",
        "redundancy: 2",
        "1:21 `train.redundancy` is 2, but `pool.workers` is 2 // set `pool.workers` to 3 or more: each shard is on 3",
    );
    check(
        "workers: 3",
        "redundancy: 16",
        "1:21 `train.redundancy` must be a whole number from 0 to 15, but is 16",
    );
}
