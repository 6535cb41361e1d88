//! Every layer and loss: the engine's predictions, loss and gradient against a plain f64 reference
//! and its finite differences.

use crate::naive::{Case, Wanted, check_all};
use crate::support::*;
use planaria_recipe::model::{Conv2D, Dense};
use planaria_recipe::train::Loss;
use planaria_recipe::{Layer, Shape};

fn vector(n: usize) -> Shape {
    Shape::Vector(n)
}

#[test]
fn dense_layers() {
    let sizes = [(1, 1), (3, 2), (16, 16), (17, 33), (70, 5), (300, 40)];
    check_all(sizes.into_iter().flat_map(|(inputs, units)| {
        let Layer::Dense(plain) = dense(units, Tanh) else { unreachable!("just made") };
        let bare = Layer::Dense(Dense { use_bias: false, ..plain });
        [
            Case::new(
                format!("{inputs}-{units}-3"),
                vector(inputs),
                vec![dense(units, Relu), dense(3, Linear)],
            ),
            Case::new(
                format!("{inputs}-{units}-3 without bias"),
                vector(inputs),
                vec![bare, dense(3, Linear)],
            )
            .examples(7),
        ]
    }));
}

/// Sizes at which matrix products are cut into blocks or copied first.
#[test]
fn wide_dense_layers() {
    check_all([
        Case::new("1024 inputs", vector(1024), vec![dense(16, Relu), dense(3, Linear)]).examples(6),
        Case::new(
            "1024 units",
            vector(5),
            vec![dense(1024, Relu), dense(17, Tanh), dense(3, Linear)],
        )
        .examples(6),
        Case::new("more examples than inputs", vector(2), vec![dense(4, Gelu), dense(2, Linear)])
            .examples(150),
        Case::new(
            "more examples than a block",
            vector(33),
            vec![dense(9, Relu), batch_norm(), dense(2, Linear)],
        )
        .examples(300),
    ]);
}

#[test]
fn activations() {
    let all = [Linear, Relu, LeakyRelu, Gelu, Sigmoid, Tanh, Softmax];
    check_all(all.into_iter().flat_map(|f| {
        let input = image(5, 4, 3);
        let own = Layer::Conv2D(Conv2D { activation: f, ..conv(6, [2, 2]) });
        [
            Case::new(
                format!("{f:?} of a dense layer"),
                vector(9),
                vec![dense(11, f), dense(4, Linear)],
            ),
            Case::new(
                format!("{f:?} of a convolution"),
                input,
                vec![own, flatten(), dense(4, Linear)],
            ),
            Case::new(
                format!("{f:?} on its own, twice"),
                input,
                vec![conv3(7, Same, Linear), act(f), act(f), flatten(), dense(4, Linear)],
            ),
            Case::new(
                format!("{f:?} of the input"),
                input,
                vec![act(f), flatten(), dense(4, Linear)],
            ),
            Case::new(
                format!("{f:?} at the end, mse"),
                vector(9),
                vec![dense(8, Tanh), dense(4, f)],
            )
            .loss(Loss::Mse),
        ]
    }));
}

#[test]
fn losses() {
    let net = |units| vec![dense(12, Tanh), dense(units, Linear)];
    let case =
        |name: &str, units, loss| Case::new(name, vector(6), net(units)).examples(9).loss(loss);
    let numbers = |mut case: Case, units: usize| {
        case.name.push_str(" of numbers");
        case.wanted = Wanted::Values(values(5, case.examples * units));
        case
    };
    let mut cases = vec![];
    for smoothing in [0.0, 0.1, 0.5] {
        let mut c = case(&format!("cross-entropy, {smoothing}"), 5, Loss::CrossEntropy);
        c.label_smoothing = smoothing;
        cases.push(c.clone());
        c.name.push_str(", last softmax folded");
        c.layers.push(act(Softmax));
        cases.push(c);
    }
    for (name, loss) in [
        ("binary cross-entropy", Loss::BinaryCrossEntropy),
        ("mse", Loss::Mse),
        ("hinge", Loss::Hinge),
        ("squared hinge", Loss::SquaredHinge),
    ] {
        cases.push(case(&format!("{name}, 1 unit"), 1, loss));
        cases.push(case(&format!("{name}, 4 units"), 4, loss));
        cases.push(numbers(case(&format!("{name}, 1 unit"), 1, loss), 1));
        cases.push(numbers(case(&format!("{name}, 4 units"), 4, loss), 4));
    }
    let mut folded = case("binary cross-entropy, sigmoid folded", 3, Loss::BinaryCrossEntropy);
    folded.layers = vec![dense(12, Tanh), dense(3, Sigmoid)];
    cases.push(folded);
    let mut regression = case("mse of class numbers", 1, Loss::Mse);
    regression.wanted = Wanted::Classes(classes(3, 9, 7));
    cases.push(regression);
    check_all(cases);
}

#[test]
fn pools() {
    let sizes = [
        ([2, 2], [2, 2]),
        ([3, 3], [2, 2]),
        ([2, 2], [1, 1]),
        ([3, 2], [1, 3]),
        ([1, 1], [2, 2]),
        ([2, 4], [3, 2]),
        ([5, 5], [5, 5]),
    ];
    let images = [image(6, 6, 3), image(7, 5, 17), image(5, 9, 16), image(8, 7, 40)];
    let mut cases = vec![];
    for (i, (size, strides)) in sizes.into_iter().enumerate() {
        for padding in [Valid, Same] {
            let input = images[i % images.len()];
            let name = format!("{size:?} by {strides:?} {padding:?} of {input}");
            for (kind, pool) in [
                ("max", max_pool(size, strides, padding)),
                ("average", average_pool(size, strides, padding)),
            ] {
                let filters = [4, 16, 19][i % 3];
                let layers = vec![conv3(filters, Same, Tanh), pool, flatten(), dense(3, Linear)];
                cases.push(Case::new(format!("{kind} {name}"), input, layers));
            }
        }
    }
    cases.push(Case::new(
        "global",
        image(5, 3, 7),
        vec![conv3(18, Same, Relu), global(), dense(3, Linear)],
    ));
    cases.push(Case::new(
        "pools of the input",
        image(7, 7, 5),
        vec![
            max_pool([2, 2], [2, 2], Same),
            average_pool([2, 2], [1, 1], Valid),
            global(),
            dense(3, Linear),
        ],
    ));
    cases.push(Case::new(
        "global at the end",
        image(6, 6, 3),
        vec![conv3(4, Valid, Relu), global()],
    ));
    check_all(cases);
}

#[test]
fn batch_normalisation() {
    let case = |name: &str, input, mut layers: Vec<Layer>| {
        layers.push(dense(3, Linear));
        Case::new(name, input, layers).examples(5)
    };
    let plain = |filters, padding| {
        Layer::Conv2D(Conv2D { use_bias: false, padding, ..conv(filters, [3, 3]) })
    };
    let mut cases = vec![
        case("after dense", vector(6), vec![dense(10, Linear), batch_norm()]),
        case("after dense, relu", vector(6), vec![dense(17, Linear), batch_norm(), act(Relu)]),
        case("of a vector", vector(6), vec![batch_norm()]),
        case("of an image, relu", image(4, 5, 3), vec![batch_norm(), act(Relu), flatten()]),
        case("after relu", image(6, 6, 2), vec![conv3(5, Same, Relu), batch_norm(), flatten()]),
        case(
            "after a pool",
            image(6, 6, 3),
            vec![conv3(16, Same, Relu), max_pool([2, 2], [2, 2], Valid), batch_norm(), flatten()],
        ),
        case("twice", image(5, 5, 3), vec![plain(4, Same), batch_norm(), batch_norm(), flatten()]),
        case("then tanh", image(5, 5, 3), vec![plain(4, Valid), batch_norm(), act(Tanh), global()]),
        case(
            "used twice",
            image(5, 5, 3),
            vec![
                plain(16, Same),
                batch_norm(),
                concat(vec![vec![act(Relu)], vec![conv3(16, Same, Linear)], vec![]]),
                global(),
            ],
        ),
    ];
    for (filters, padding) in [(4, Valid), (16, Same), (32, Valid), (17, Same)] {
        let name = format!("{filters} filters, {padding:?}");
        let start = conv3(16, Same, Relu);
        let body = |f| vec![start.clone(), plain(filters, padding), batch_norm(), act(f), global()];
        cases.push(case(&format!("{name}, relu"), image(6, 5, 3), body(Relu)));
        cases.push(case(&format!("{name}, linear"), image(6, 5, 3), body(Linear)));
        let mut cut = case(&format!("{name}, 3 shards"), image(6, 5, 3), body(Relu)).examples(8);
        cut.shards = 3;
        cases.push(cut);
    }
    let depthwise = |activation| {
        let own = conv(6, [3, 3]);
        Layer::Conv2D(Conv2D { groups: 6, padding: Same, activation, use_bias: false, ..own })
    };
    cases.push(case(
        "depthwise",
        image(5, 5, 6),
        vec![depthwise(Linear), batch_norm(), act(Relu), depthwise(Linear), batch_norm(), global()],
    ));
    let mut empty = case(
        "more shards than examples",
        vector(4),
        vec![dense(6, Linear), batch_norm(), act(Relu)],
    );
    (empty.examples, empty.shards) = (3, 5);
    cases.push(empty);
    check_all(cases);
}

#[test]
fn layer_normalisation() {
    check_all([
        Case::new("of a vector", vector(9), vec![layer_norm(), dense(3, Linear)]),
        Case::new(
            "after dense",
            vector(9),
            vec![dense(20, Linear), layer_norm(), dense(3, Linear)],
        ),
        Case::new("of an image", image(4, 3, 5), vec![layer_norm(), flatten(), dense(3, Linear)]),
        Case::new(
            "after conv",
            image(5, 5, 3),
            vec![
                conv3(16, Same, Relu),
                layer_norm(),
                conv3(16, Valid, Gelu),
                layer_norm(),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "one channel",
            image(4, 4, 1),
            vec![conv3(1, Same, Linear), layer_norm(), flatten(), layer_norm(), dense(3, Linear)],
        ),
        Case::new(
            "in a residual",
            vector(8),
            vec![
                dense(8, Relu),
                residual(vec![layer_norm(), dense(8, Gelu)], vec![], Linear),
                layer_norm(),
                dense(3, Linear),
            ],
        ),
    ]);
}

#[test]
fn dropout_of_nothing() {
    let with = |rate: &[f32]| {
        let mut layers = vec![conv3(5, Same, Relu)];
        layers.extend(rate.iter().map(|r| dropout(*r)));
        layers.extend([flatten()]);
        layers.extend(rate.iter().map(|r| dropout(*r)));
        layers.push(dense(3, Linear));
        layers
    };
    check_all([
        Case::new("rate 0", image(5, 5, 3), with(&[0.0])),
        Case::new("of the input", image(5, 5, 3), [vec![dropout(0.0)], with(&[0.0])].concat()),
        Case::new("last", vector(5), vec![dense(3, Linear), dropout(0.0)]),
    ]);
}

#[test]
fn parameterless_beginnings() {
    check_all([
        Case::new("flatten", image(4, 4, 3), vec![flatten(), dense(3, Relu), dense(2, Linear)]),
        Case::new(
            "pool, tanh",
            image(6, 6, 3),
            vec![
                max_pool([2, 2], [2, 2], Valid),
                act(Tanh),
                conv3(5, Valid, Relu),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "concat of pools",
            image(6, 6, 3),
            vec![
                concat(vec![
                    vec![max_pool([2, 2], [2, 2], Valid)],
                    vec![average_pool([2, 2], [2, 2], Valid), act(Relu)],
                ]),
                conv3(16, Valid, Relu),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "concat of a pass-through and a convolution",
            image(5, 5, 3),
            vec![
                concat(vec![vec![], vec![conv3(4, Same, Relu)]]),
                conv3(5, Valid, Relu),
                global(),
                dense(3, Linear),
            ],
        ),
        Case::new("softmax", vector(6), vec![act(Softmax), dense(3, Linear)]),
    ]);
}

#[test]
fn a_residual_without_parameters_comes_first() {
    check_all([
        Case::new(
            "of a vector",
            vector(6),
            vec![residual(vec![act(Tanh)], vec![], Linear), dense(3, Linear)],
        ),
        Case::new(
            "of an image, relu",
            image(5, 5, 3),
            vec![
                scaled_residual(vec![average_pool([3, 3], [1, 1], Same)], vec![], 0.5),
                conv3(4, Valid, Relu),
                global(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "whose one branch has parameters",
            image(5, 5, 3),
            vec![
                residual(vec![conv3(3, Same, Linear)], vec![act(Tanh)], Relu),
                global(),
                dense(3, Linear),
            ],
        ),
    ]);
}
