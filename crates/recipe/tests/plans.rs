//! What a plan counts, against figures that others published.

use planaria_recipe::plan::shard_sizes;
use planaria_recipe::{DataFacts, Plan, Shape, Source, to_yaml};

fn image(side: usize, channels: usize) -> Shape {
    Shape::Image { height: side, width: side, channels }
}

fn plan(model: &str, input: Shape, classes: usize) -> Plan {
    let text = format!("name: a\ndata: {{train: digits}}\nmodel: {model}\ntrain: {{batch: 100}}\n");
    let source = Source::parse("r.yaml", text.as_bytes(), &[]).unwrap_or_else(|d| panic!("{d}"));
    let facts = DataFacts { input, classes: Some(classes), examples: 1050 };
    source.plan(&facts).unwrap_or_else(|d| panic!("{d}"))
}

#[test]
fn presets_have_their_published_sizes() {
    for (preset, input, classes, parameters) in [
        ("mlp", image(28, 1), 10, 109_386),
        // Keras' mnist_cnn example.
        ("cnn", image(28, 1), 10, 1_199_882),
        // He et al. 2016 give 0.27, 0.46, 0.66 and 0.85 million, less the projections.
        ("resnet20", image(32, 3), 10, 272_474),
        ("resnet32", image(32, 3), 10, 466_906),
        ("resnet44", image(32, 3), 10, 661_338),
        ("resnet56", image(32, 3), 10, 855_770),
        // torchvision's resnet18.
        ("resnet18", image(224, 3), 1000, 11_689_512),
    ] {
        let plan = plan(&format!("{{preset: {preset}}}"), input, classes);
        assert_eq!(plan.parameters, parameters, "{preset}");
        assert_eq!(plan.layers.last().map(|l| l.output), Some(Shape::Vector(classes)), "{preset}");
        assert!(plan.recipe.model.preset.is_none() && plan.recipe.model.layers.is_some());
    }
}

#[test]
fn work_is_counted_as_documented() {
    let plan =
        plan("{layers: [Flatten, {Dense: {units: 20}}, {Dense: {units: 10}}]}", image(4, 1), 10);
    assert_eq!(plan.flops_forward, 2 * (16 * 20 + 20 * 10));
    assert_eq!(plan.flops_step, 100 * (3 * plan.flops_forward - 2 * 16 * 20));
    assert_eq!((plan.parameters, plan.gradient_bytes), (16 * 20 + 20 + 200 + 10, 4 * 550));
    assert_eq!(plan.steps_per_epoch, 11);
    assert_eq!(plan.shards, [12, 13, 12, 13, 12, 13, 12, 13]);
    assert_eq!(shard_sizes(3, 5), [0, 1, 0, 1, 1]);
    let json = serde_json::to_value(&plan).expect("plans are plain data");
    assert_eq!(json["layers"][0]["output"], serde_json::json!([16]));
}

#[test]
fn a_batch_is_no_larger_than_the_data() {
    let text = "name: a\ndata: {train: digits}\nmodel: {preset: mlp}\ntrain: {batch: 100000000}\n";
    let source = Source::parse("r.yaml", text.as_bytes(), &[]).unwrap_or_else(|d| panic!("{d}"));
    let facts = DataFacts { input: image(28, 1), classes: Some(10), examples: 900 };
    let plan = source.plan(&facts).unwrap_or_else(|d| panic!("{d}"));
    assert_eq!((plan.recipe.train.batch, plan.batch_asked), (900, Some(100_000_000)));
    let note =
        "`train.batch` is 100,000,000, but there are 900 training examples: each step takes all";
    assert!(plan.to_string().contains(note), "{plan}");
    let fits = source.plan(&DataFacts { examples: 100_000_000, ..facts });
    assert_eq!(fits.unwrap_or_else(|d| panic!("{d}")).batch_note(), None);
}

#[test]
fn numbers_are_predicted_by_one_output_and_mse() {
    let check = |units: usize, loss: &str, expect: &str| {
        let text = format!(
            "name: a\ndata: {{train: digits}}\nmodel: {{layers: [{{Dense: {{units: {units}}}}}]}}\n\
             train: {{loss: {loss}}}\n"
        );
        let facts = DataFacts { input: Shape::Vector(4), classes: None, examples: 90 };
        let planned = Source::parse_and_plan("r.yaml", text.as_bytes(), &[], |_| Ok(facts));
        match planned {
            Ok(_) => assert_eq!(expect, ""),
            Err(mistakes) => {
                let said = mistakes.to_string();
                assert!(said.contains(expect) && said.contains("1 mistake"), "{said}");
            }
        }
    };
    check(1, "mse", "");
    check(5, "mse", "`mse` needs 1 output unit for a number, but there are 5");
    check(1, "hinge", "`hinge` needs classes, but the targets are numbers");
    check(1, "cross_entropy", "`cross_entropy` needs classes");
    // One mistake is told once.
    check(1, "mae", "there is no such loss");
}

#[test]
fn batch_normalisation_keeps_state_and_depthwise_counts_its_groups() {
    let layers = "{layers: [{Conv2D: {filters: 6, kernel_size: [3, 1], groups: 3, padding: same}}, BatchNormalization, GlobalAveragePooling2D]}";
    let plan = plan(layers, image(8, 3), 6);
    assert_eq!((plan.parameters, plan.state), (3 * 6 + 6 + 12, 12));
    assert_eq!(plan.flops_forward, 2 * 64 * 3 * 6);
}

#[test]
fn plans_print_as_a_table() {
    let layers = "{layers: [{Residual: {layers: [{Conv2D: {filters: 1, kernel_size: 3, padding: same}}]}}, Flatten, {Dense: {units: 10}}]}";
    let expect = "\
recipe      a, seed 0
data        digits: 1,050 training examples of 28×28×1, 10 classes
test        none
validation  0.1 of the examples, set aside by the seed
output      runs/a-<time>/

layer       kind       output  parameters  forward FLOPs
            input     28×28×1
1           Residual  28×28×1           0              0
1.layers.1    Conv2D  28×28×1          10         14,112
2           Flatten       784           0              0
3           Dense          10       7,850         15,680
total                               7,860         29,792

training    10 epochs of 11 steps, batch 100
shards      8 with 12 or 13 examples each
each step   7.53 MFLOP (2 per multiply-add; forward and backward), 30.70 KiB of gradient, 30.70 KiB of parameters
";
    assert_eq!(plan(layers, image(28, 1), 10).to_string(), expect);
}

#[test]
fn numbers_of_workers_are_written_as_they_were_read() {
    for (written, least, most) in
        [("1", 1, 1), ("8", 1, 8), ("{min: 2, max: 8}", 2, 8), ("{min: 3, max: 3}", 3, 3)]
    {
        let text = format!(
            "name: a\npool: {{workers: {written}}}\ndata: {{train: digits}}\nmodel: {{preset: mlp}}"
        );
        let source = Source::parse("r.yaml", text.as_bytes(), &[]).unwrap();
        let workers = source.recipe().pool.workers;
        assert_eq!((workers.min(), workers.max()), (least, most));
        let resolved = to_yaml(source.recipe());
        assert!(resolved.contains(&format!("\n  workers: {written}\n")), "{resolved}");
        let again = Source::parse("r.yaml", resolved.as_bytes(), &[]).unwrap();
        assert_eq!(again.recipe(), source.recipe());
        assert_eq!((workers.at_most(2).min(), workers.at_most(2).max()), (least.min(2), 2));
    }
}

#[test]
fn resolved_recipes_are_explicit_and_short() {
    let layers = "{layers: [{MaxPooling2D: {pool_size: [2, 3]}}, Flatten, {Dense: {units: 10}}]}";
    let expect = "\
name: a
seed: 0
pool:
  provider: local
  workers: 1
  threads: 0
data:
  train: digits
  validation: 0.1
  format: auto
  normalize: {mean: [0.0], std: [1.0]}
  augment: {crop_padding: 0, horizontal_flip: false, cutout: 0}
model:
  layers:
    - {MaxPooling2D: {pool_size: [2, 3], strides: [2, 3], padding: valid}}
    - {Flatten: {}}
    - {Dense: {units: 10, activation: linear, use_bias: true, kernel_initializer: glorot_uniform, bias_initializer: zeros}}
train:
  epochs: 10
  batch: 100
  shards: 8
  loss: cross_entropy
  label_smoothing: 0.0
  optimizer: {sgd: {learning_rate: 0.01, momentum: 0.0, nesterov: false, weight_decay: 0.0}}
  schedule: constant
  warmup_steps: 0
output:
  dir: runs
  checkpoint_epochs: 0
  checkpoint_steps: 0
  keep: 2
";
    assert_eq!(to_yaml(&plan(layers, image(28, 1), 10).recipe), expect);
}
