//! Hostile input never panics, and what is written reads back the same.

use planaria_recipe::model::*;
use planaria_recipe::pool::providers::ssh;
use planaria_recipe::pool::*;
use planaria_recipe::sections::*;
use planaria_recipe::setup::*;
use planaria_recipe::table::*;
use planaria_recipe::train::*;
use planaria_recipe::{DataFacts, Shape, Source, to_yaml};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const DIGITS: &str = include_str!("../../../examples/digits.yaml");
const RESNET: &str = include_str!("../../../examples/cifar-resnet20.yaml");

const POOLED: &str = include_str!("pooled.yaml");

/// Runs everything that a user's text can reach.
fn exercise(bytes: &[u8], sets: &[String], facts: DataFacts) {
    match Source::parse_and_plan("r.yaml", bytes, sets, |_| Ok(facts)) {
        Ok((source, plan)) => {
            assert!(!plan.to_string().is_empty());
            let again = Source::parse("again.yaml", to_yaml(source.recipe()).as_bytes(), &[]);
            assert_eq!(again.as_ref().map(Source::recipe), Ok(source.recipe()));
        }
        Err(diagnostics) => {
            assert!(!diagnostics.list.is_empty(), "a refusal without a reason");
            assert!(diagnostics.to_string().contains("mistake"));
        }
    }
}

fn facts() -> impl Strategy<Value = DataFacts> {
    let size = prop_oneof![4 => 1usize..40, 1 => any::<usize>()];
    let image = (size.clone(), size.clone(), size.clone())
        .prop_map(|(height, width, channels)| Shape::Image { height, width, channels });
    let shape = prop_oneof![3 => image, 1 => size.clone().prop_map(Shape::Vector)];
    (shape, option::of(size.clone()), size).prop_map(|(input, classes, examples)| DataFacts {
        input,
        classes,
        examples,
    })
}

fn small() -> DataFacts {
    let input = Shape::Image { height: 28, width: 28, channels: 1 };
    DataFacts { input, classes: Some(10), examples: 100 }
}

/// Words of YAML and of recipes.
const TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ": ",
    "- ",
    "\n",
    "\n  ",
    "\t",
    "&a ",
    "*a",
    "!!str ",
    "\"",
    "'",
    "|",
    ">",
    "#",
    "---\n",
    "?",
    "<<: ",
    "null",
    "~",
    "1e999",
    "-1",
    ".nan",
    "0x",
    "true",
    "model",
    "layers",
    "preset: ",
    "Dense",
    "{Dense: {units: 3}}",
    "Residual",
    "Concat",
    "branches: [[]]",
    "train:",
    "sgd",
    "18446744073709551616",
    "é",
    "\u{feff}",
    "\u{0}",
    "1000000",
    "[4096, 4096]",
    "same",
    "\r",
    "name: x",
];

/// A piece of text that means something to YAML or to recipes.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => proptest::sample::select(TOKENS).prop_map(str::to_owned),
        1 => ".{0,6}"
    ]
}

fn mutated(base: &'static str) -> impl Strategy<Value = String> {
    vec((any::<prop::sample::Index>(), 0usize..12, piece()), 1..5).prop_map(move |changes| {
        let mut text: Vec<char> = base.chars().collect();
        for (at, remove, insert) in changes {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.splice(at..end, insert.chars());
        }
        text.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn bytes_never_panic(bytes in vec(any::<u8>(), 0..600), set in ".{0,30}") {
        exercise(&bytes, &[set], small());
    }

    #[test]
    fn pieces_never_panic(pieces in vec(piece(), 0..60), set in vec(piece(), 0..8)) {
        exercise(pieces.concat().as_bytes(), &[format!("train.{}", set.concat())], small());
    }

    #[test]
    fn mutated_recipes_never_panic(
        text in prop_oneof![mutated(DIGITS), mutated(RESNET), mutated(POOLED)],
        facts in facts(),
    ) {
        exercise(text.as_bytes(), &[], facts);
    }

    #[test]
    fn mutated_sets_never_panic(value in vec(piece(), 0..6), key in "(model|train|data)(\\.[a-z0-9]{1,6}){0,3}") {
        exercise(DIGITS.as_bytes(), &[format!("{key}={}", value.concat())], small());
    }

    #[test]
    fn recipes_read_back_the_same(recipe in recipe()) {
        let text = to_yaml(&recipe);
        let source = Source::parse("r.yaml", text.as_bytes(), &[]);
        match source {
            Ok(source) => prop_assert_eq!(source.recipe(), &recipe),
            Err(diagnostics) => prop_assert!(false, "{diagnostics}\n{text}"),
        }
    }

    #[test]
    fn plans_of_any_layers_never_panic(recipe in recipe(), facts in facts()) {
        exercise(to_yaml(&recipe).as_bytes(), &[], facts);
    }
}

fn f(range: std::ops::RangeInclusive<f32>) -> impl Strategy<Value = f32> + Clone {
    let (low, high) = (*range.start(), *range.end());
    prop_oneof![Just(low), Just(high), low..high]
}

fn size2() -> impl Strategy<Value = Size2> {
    let n = prop_oneof![3 => 1usize..6, 1 => 1usize..=4096];
    prop_oneof![
        n.clone().prop_map(Size2::Square),
        (n.clone(), n).prop_map(|(h, w)| Size2::Pair([h, w]))
    ]
}

fn activation() -> impl Strategy<Value = Activation> {
    use Activation::*;
    proptest::sample::select(vec![Linear, Relu, LeakyRelu, Gelu, Sigmoid, Tanh, Softmax])
}

fn initializer() -> impl Strategy<Value = Initializer> {
    use Initializer::*;
    proptest::sample::select(vec![GlorotUniform, GlorotNormal, HeNormal, LecunUniform, Zeros, Ones])
}

fn padding() -> impl Strategy<Value = Padding> {
    proptest::sample::select(vec![Padding::Valid, Padding::Same])
}

fn simple_layer() -> impl Strategy<Value = Layer> {
    let dense = (1usize..=1_000_000, activation(), any::<bool>(), initializer(), initializer());
    let dense =
        dense.prop_map(|(units, activation, use_bias, kernel_initializer, bias_initializer)| {
            Layer::Dense(Dense {
                units,
                activation,
                use_bias,
                kernel_initializer,
                bias_initializer,
            })
        });
    let conv =
        (1usize..=65_536, size2(), size2(), padding(), 1usize..4, activation(), initializer());
    let conv =
        conv.prop_map(|(filters, kernel_size, strides, padding, groups, activation, init)| {
            Layer::Conv2D(Conv2D {
                filters,
                kernel_size,
                strides,
                padding,
                groups,
                activation,
                use_bias: groups == 1,
                kernel_initializer: init,
                bias_initializer: Initializer::Zeros,
            })
        });
    let pool = (size2(), option::of(size2()), padding(), any::<bool>());
    let pool = pool.prop_map(|(pool_size, strides, padding, max)| {
        let pool = Pooling2D { pool_size, strides, padding };
        if max { Layer::MaxPooling2D(pool) } else { Layer::AveragePooling2D(pool) }
    });
    prop_oneof![
        dense,
        conv,
        pool,
        Just(Layer::GlobalAveragePooling2D(NoOptions {})),
        Just(Layer::Flatten(NoOptions {})),
        (f(0.0..=1.0), f(1e-6..=1.0)).prop_map(|(momentum, epsilon)| {
            Layer::BatchNormalization(BatchNormalization { momentum, epsilon })
        }),
        f(1e-6..=1.0).prop_map(|epsilon| Layer::LayerNormalization(LayerNormalization { epsilon })),
        f(0.0..=0.99).prop_map(|rate| Layer::Dropout(Dropout { rate })),
        activation().prop_map(Layer::Activation),
    ]
}

fn layer() -> impl Strategy<Value = Layer> {
    simple_layer().prop_recursive(3, 24, 4, |inner| {
        let residual =
            (vec(inner.clone(), 0..4), vec(inner.clone(), 0..3), any::<f32>(), activation());
        let residual = residual.prop_map(|(layers, shortcut, scale, activation)| {
            let scale = if scale.is_finite() { scale } else { 0.17 };
            Layer::Residual(Residual { layers, shortcut, scale, activation })
        });
        let concat =
            vec(vec(inner, 0..3), 1..4).prop_map(|branches| Layer::Concat(Concat { branches }));
        prop_oneof![residual, concat]
    })
}

fn part() -> impl Strategy<Value = Option<Part>> {
    prop_oneof![
        Just(None),
        (0.001f64..0.499).prop_map(|s| Some(Part::Share(s))),
        ".{1,12}".prop_map(|p| Some(Part::Path(p))),
    ]
}

fn column() -> impl Strategy<Value = Column> {
    prop_oneof![(1i64..1000).prop_map(Column::Number), ".{1,9}".prop_map(Column::Name)]
}

/// Distinct columns, dealt out to what a table uses them for.
fn table() -> impl Strategy<Value = Table> {
    let missing = prop_oneof![
        Just(Missing::Error),
        Just(Missing::Median),
        (-1e9f64..1e9).prop_map(Missing::Value)
    ];
    let positive = prop_oneof![
        Just(None),
        (-1e9f64..1e9).prop_map(|x| Some(Word::Number(x))),
        ".{0,9}".prop_map(|t| Some(Word::Text(t)))
    ];
    let columns = proptest::collection::btree_set(column(), 5..9);
    (columns, missing, positive, ";|\t|,", 2usize..50, any::<bool>()).prop_map(
        |(columns, missing, positive, delimiter, count, on)| {
            let mut columns = columns.into_iter();
            let mut next = || columns.next().into_iter().collect::<Vec<_>>();
            let bins = |columns| Bins { columns, count, encode: BinEncoding::Ordinal };
            Table {
                label: next().pop(),
                positive,
                header: on,
                skip_rows: count,
                delimiter,
                missing,
                drop: next(),
                one_hot: next(),
                bins: vec![bins(next())],
                standardize: match on {
                    true => Standardize::Columns(next()),
                    false => Standardize::All(false),
                },
                ..Table::default()
            }
        },
    )
}

fn data() -> impl Strategy<Value = Data> {
    let files = (".{1,20}", part(), part(), option::of(1usize..1_000_000_000));
    let lists = (any::<f32>(), 1e-3f32..1e3);
    (files, lists, any::<bool>(), option::weighted(0.3, table())).prop_map(
        |((train, test, validation, examples), (mean, std), horizontal_flip, table)| {
            let mean = if mean.is_finite() { mean } else { 0.5 };
            let images = (
                Normalize { mean: vec![mean], std: vec![std] },
                Augment { crop_padding: 4, horizontal_flip, cutout: 0 },
            );
            let (normalize, augment) = if table.is_some() { Default::default() } else { images };
            let format = if table.is_some() { Format::Csv } else { Format::Auto };
            Data { train, test, validation, format, table, examples, normalize, augment }
        },
    )
}

fn optimizer() -> impl Strategy<Value = Optimizer> {
    let adam =
        (f(0.0..=1000.0), 0.0f32..0.9999, 1e-20f32..1.0).prop_map(|(learning_rate, b, epsilon)| {
            Adam { learning_rate, beta_1: b, beta_2: b, epsilon, weight_decay: 0.1 }
        });
    prop_oneof![
        (f(0.0..=1000.0), f(0.0..=1.0), any::<bool>()).prop_map(
            |(learning_rate, momentum, nesterov)| {
                Optimizer::Sgd(Sgd { learning_rate, momentum, nesterov, weight_decay: 5e-4 })
            }
        ),
        adam.clone().prop_map(Optimizer::Adam),
        adam.prop_map(Optimizer::Adamw),
        Just(Optimizer::Rmsprop(Rmsprop::default())),
    ]
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        Just(Schedule::Constant),
        (1usize..100, f(0.0..=1.0))
            .prop_map(|(epochs, factor)| Schedule::Step(StepSchedule { epochs, factor })),
        f(0.0..=1.0).prop_map(|final_factor| Schedule::Cosine(CosineSchedule { final_factor })),
    ]
}

fn train() -> impl Strategy<Value = Train> {
    let sizes = (1usize..1_000_000, 1usize..1_048_576, 1usize..4096, any::<u64>());
    (sizes, optimizer(), schedule(), option::of(1e-3f32..1e9), f(0.0..=0.99)).prop_map(
        |(
            (epochs, batch, shards, warmup_steps),
            optimizer,
            schedule,
            clip_norm,
            label_smoothing,
        )| Train {
            epochs,
            batch,
            shards,
            loss: Loss::CrossEntropy,
            label_smoothing,
            optimizer,
            schedule,
            warmup_steps,
            clip_norm,
            ..Train::default()
        },
    )
}

/// Any text that a command may be.
fn command() -> impl Strategy<Value = String> {
    let sound = |text: &String| !text.trim().is_empty() && !text.contains("${env:");
    "[^\0]{1,30}".prop_filter("a command", sound)
}

fn step() -> impl Strategy<Value = Step> {
    let secret = ".{0,9}".prop_filter("no reference", |t: &String| !t.starts_with("file:"));
    let value = prop_oneof![
        any::<bool>().prop_map(Scalar::Bool),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Scalar::Int),
        (-1e300f64..1e300).prop_map(Scalar::Float),
        secret.clone().prop_map(|text| Scalar::Text(SecretText::new(text))),
    ];
    let env = proptest::collection::btree_map("[A-Z_][A-Z0-9_]{0,5}", secret, 0..3);
    let env = env.prop_map(|env| env.into_iter().map(|(k, v)| (k, SecretText::new(v))).collect());
    let values = proptest::collection::btree_map("[b-d][a-z]{0,5}", value, 0..3);
    prop_oneof![
        (command(), env, option::of(0u32..=10)).prop_map(|(run, env, retries)| Step {
            run: Some(run),
            env,
            retries,
            ..Step::default()
        }),
        ("[^\0-\x1f\x7f-\u{9f}]{1,20}", values).prop_map(|(from, values)| Step {
            template: Some(from),
            to: Some("~/x y".into()),
            mode: Some("0600".into()),
            values,
            ..Step::default()
        }),
        command().prop_map(|check| Step { check: Some(check), ..Step::default() }),
    ]
}

fn pool() -> impl Strategy<Value = Pool> {
    let hosts = proptest::collection::btree_set("[a-z0-9][a-z0-9.-]{0,9}", 1..4);
    let hosts = hosts.prop_map(|names| names.into_iter().map(ssh::HostEntry::Short).collect());
    let (slots, servers) = (option::of(64usize..99), option::of(1usize..4));
    (hosts, 1usize..64, slots, servers).prop_map(|(hosts, workers, slots, servers)| Pool {
        supply: Supply {
            provider: Provider::Ssh(ssh::Settings { hosts, ..ssh::Settings::default() }),
            machines: None,
        },
        workers: Workers::Count(workers),
        slots,
        servers,
        ..Pool::default()
    })
}

fn recipe() -> impl Strategy<Value = Recipe> {
    let pooled = option::of((pool(), vec(step(), 0..4)));
    let name = "[a-zA-Z0-9_-][a-zA-Z0-9_.-]{0,20}";
    (name, any::<u64>(), data(), vec(layer(), 1..6), train(), pooled).prop_map(
        |(name, seed, data, layers, train, pooled)| {
            let (pool, setup) = pooled.unwrap_or_default();
            let model = Model { layers: Some(layers), preset: None, features: None };
            let output = Output {
                dir: "some where/é".into(),
                checkpoint_epochs: 7,
                checkpoint_steps: seed,
                keep: 3,
            };
            Recipe { name, seed, pool, setup, data, model, train, output }
        },
    )
}
