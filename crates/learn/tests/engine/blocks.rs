//! Residual and concat blocks against the f64 reference and its finite differences.

use crate::naive::{Case, check_all};
use crate::support::*;
use planaria_recipe::Layer;
use planaria_recipe::model::{Conv2D, Padding, Size2};

/// A convolution without bias or activation, as residual networks have them.
fn bare(filters: usize, kernel: usize, stride: usize, padding: Padding) -> Layer {
    let strides = Size2::Square(stride);
    Layer::Conv2D(Conv2D { strides, padding, use_bias: false, ..conv(filters, [kernel, kernel]) })
}

/// `body` between a convolution and a dense layer.
fn inside(name: &str, channels: usize, body: Vec<Layer>) -> Case {
    let mut layers = vec![conv3(channels, Same, Tanh)];
    layers.extend(body);
    layers.extend([global(), dense(3, Linear)]);
    Case::new(format!("{name}, {channels} channels"), image(6, 5, 3), layers).examples(4)
}

fn basic(filters: usize, stride: usize) -> Vec<Layer> {
    vec![
        bare(filters, 3, stride, Same),
        batch_norm(),
        act(Relu),
        bare(filters, 3, 1, Same),
        batch_norm(),
    ]
}

fn projection(filters: usize, stride: usize) -> Vec<Layer> {
    vec![bare(filters, 1, stride, Same), batch_norm()]
}

#[test]
fn residual_networks() {
    check_all([5, 16].into_iter().flat_map(|n| {
        let m = 2 * n;
        [
            inside("identity", n, vec![residual(basic(n, 1), vec![], Relu)]),
            inside("projection", n, vec![residual(basic(m, 2), projection(m, 2), Relu)]),
            inside("projection, linear", n, vec![residual(basic(m, 2), projection(m, 2), Linear)]),
            inside(
                "projection without norm",
                n,
                vec![residual(basic(m, 1), vec![bare(m, 1, 1, Same)], Relu)],
            ),
            inside(
                "norm in the shortcut alone",
                n,
                vec![residual(vec![conv3(m, Same, Linear)], projection(m, 1), Relu)],
            ),
            inside(
                "norm alone on both sides",
                n,
                vec![residual(vec![batch_norm()], vec![batch_norm()], Relu)],
            ),
            inside("norm alone, identity", n, vec![residual(vec![batch_norm()], vec![], Relu)]),
            inside(
                "identity main, norm in the shortcut",
                n,
                vec![residual(vec![], vec![batch_norm()], Relu)],
            ),
            inside(
                "two",
                n,
                vec![
                    residual(basic(n, 1), vec![], Relu),
                    residual(basic(m, 2), projection(m, 2), Relu),
                ],
            ),
            inside(
                "pre-activation",
                n,
                vec![
                    residual(
                        vec![
                            batch_norm(),
                            act(Relu),
                            bare(n, 3, 1, Same),
                            batch_norm(),
                            act(Relu),
                            bare(n, 3, 1, Same),
                        ],
                        vec![],
                        Linear,
                    ),
                    batch_norm(),
                    act(Relu),
                ],
            ),
            inside(
                "main branch ends in norm and relu",
                n,
                vec![residual(vec![bare(n, 3, 1, Same), batch_norm(), act(Relu)], vec![], Relu)],
            ),
            inside("gelu on the sum", n, vec![residual(basic(n, 1), vec![], Gelu)]),
        ]
    }));
}

#[test]
fn residuals_without_norm() {
    check_all([5, 16].into_iter().flat_map(|n| {
        [
            inside(
                "one convolution",
                n,
                vec![residual(vec![conv3(n, Same, Linear)], vec![], Linear)],
            ),
            inside(
                "one convolution, relu on both",
                n,
                vec![residual(vec![conv3(n, Same, Relu)], vec![], Relu)],
            ),
            inside(
                "scale 0.3",
                n,
                vec![scaled_residual(
                    vec![conv3(n, Same, Relu), conv3(n, Same, Linear)],
                    vec![],
                    0.3,
                )],
            ),
            inside(
                "scale 0.3, norms on both sides",
                n,
                vec![scaled_residual(basic(n, 1), projection(n, 1), 0.3)],
            ),
            inside(
                "scale -1",
                n,
                vec![scaled_residual(
                    vec![conv3(n, Same, Linear)],
                    vec![conv3(n, Same, Linear)],
                    -1.0,
                )],
            ),
            inside("twice the input", n, vec![scaled_residual(vec![], vec![], 0.3)]),
            inside("twice the input, whole", n, vec![residual(vec![], vec![], Relu)]),
            inside(
                "pools on both sides",
                n,
                vec![residual(
                    vec![max_pool([3, 3], [2, 2], Same)],
                    vec![average_pool([2, 2], [2, 2], Same)],
                    Relu,
                )],
            ),
            inside(
                "activation against pass-through",
                n,
                vec![residual(vec![act(Sigmoid)], vec![], Linear)],
            ),
        ]
    }));
}

#[test]
fn blocks_in_blocks() {
    let n = 16;
    let one = || residual(vec![conv3(n, Same, Relu)], vec![], Linear);
    check_all([
        inside(
            "residual in main",
            n,
            vec![residual(
                vec![residual(basic(n, 1), vec![], Relu), bare(n, 3, 1, Same), batch_norm()],
                vec![],
                Relu,
            )],
        ),
        inside(
            "residual alone in main",
            n,
            vec![residual(
                vec![residual(vec![conv3(n, Same, Linear)], vec![], Linear)],
                vec![],
                Linear,
            )],
        ),
        inside(
            "residual alone in main, norms",
            n,
            vec![residual(vec![residual(basic(n, 1), vec![], Linear)], vec![], Linear)],
        ),
        inside(
            "residual alone in main, relus",
            n,
            vec![residual(vec![residual(basic(n, 1), vec![], Relu)], vec![], Relu)],
        ),
        inside("residual in both", n, vec![residual(vec![one()], vec![one()], Relu)]),
        inside(
            "residual in the shortcut",
            n,
            vec![residual(basic(n, 1), vec![residual(basic(n, 1), vec![], Relu)], Relu)],
        ),
        inside(
            "three deep",
            n,
            vec![residual(vec![residual(vec![one(), act(Relu)], vec![], Relu)], vec![], Relu)],
        ),
        inside("one after another", n, vec![one(), one(), one()]),
        inside("sums straight into a norm", n, vec![one(), batch_norm(), one(), batch_norm()]),
        inside(
            "concat in a residual",
            n,
            vec![residual(
                vec![
                    concat(vec![
                        vec![conv3(8, Same, Relu)],
                        vec![conv3(8, Same, Relu), conv3(8, Same, Relu)],
                    ]),
                    Layer::Conv2D(conv(n, [1, 1])),
                ],
                vec![],
                Relu,
            )],
        ),
        inside("residual in a concat", n, vec![concat(vec![vec![one()], vec![], vec![one()]])]),
    ]);
}

#[test]
fn concats() {
    check_all([5, 16].into_iter().flat_map(|n| {
        let strided = |layer: Layer| match layer {
            Layer::Conv2D(c) => Layer::Conv2D(Conv2D { strides: Size2::Square(2), ..c }),
            other => other,
        };
        [
            inside(
                "two branches",
                n,
                vec![concat(vec![
                    vec![conv3(n, Same, Relu)],
                    vec![Layer::Conv2D(conv(3, [1, 1]))],
                ])],
            ),
            inside("pass-through first", n, vec![concat(vec![vec![], vec![conv3(7, Same, Relu)]])]),
            inside("two pass-throughs", n, vec![concat(vec![vec![], vec![]])]),
            inside("one branch", n, vec![concat(vec![vec![conv3(n, Same, Relu)]])]),
            inside("one pass-through", n, vec![concat(vec![vec![]])]),
            inside(
                "inception reduction",
                n,
                vec![concat(vec![
                    vec![max_pool([3, 3], [2, 2], Same)],
                    vec![strided(conv3(n, Same, Relu))],
                    vec![
                        conv3(n, Same, Relu),
                        strided(conv3(n, Same, Linear)),
                        batch_norm(),
                        act(Relu),
                    ],
                ])],
            ),
            inside(
                "norms in branches",
                n,
                vec![
                    concat(vec![
                        vec![bare(n, 3, 1, Same), batch_norm(), act(Relu)],
                        vec![bare(n, 1, 1, Same), batch_norm()],
                        vec![],
                    ]),
                    batch_norm(),
                    act(Relu),
                    conv3(n, Same, Relu),
                ],
            ),
        ]
    }));
}

#[test]
fn concats_of_the_input_and_of_vectors() {
    check_all([
        Case::new(
            "of the input, three branches",
            image(6, 6, 3),
            vec![
                concat(vec![vec![], vec![conv3(16, Same, Relu)], vec![act(Tanh)]]),
                conv3(16, Valid, Relu),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "16 channels of the input",
            image(6, 6, 16),
            vec![
                concat(vec![vec![], vec![conv3(16, Same, Relu)]]),
                conv3(16, Same, Relu),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "flatten in branches",
            image(4, 4, 3),
            vec![
                concat(vec![
                    vec![flatten()],
                    vec![conv3(5, Valid, Relu), flatten()],
                    vec![conv3(4, Same, Relu), global()],
                ]),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "flatten, then concat",
            image(4, 4, 3),
            vec![
                conv3(5, Same, Relu),
                flatten(),
                concat(vec![vec![], vec![dense(7, Relu)], vec![dense(4, Tanh), dense(3, Linear)]]),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "flatten a norm, then use it twice",
            image(4, 4, 3),
            vec![
                bare(5, 3, 1, Same),
                batch_norm(),
                act(Relu),
                flatten(),
                residual(vec![dense(80, Relu)], vec![], Linear),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "residual of vectors",
            planaria_recipe::Shape::Vector(6),
            vec![
                residual(vec![dense(6, Relu), dense(6, Linear)], vec![], Relu),
                residual(vec![dense(9, Linear), batch_norm()], vec![dense(9, Linear)], Relu),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "residual of the input",
            image(5, 5, 3),
            vec![
                residual(vec![conv3(3, Same, Linear), batch_norm()], vec![], Relu),
                residual(vec![batch_norm(), act(Relu), conv3(3, Same, Linear)], vec![], Linear),
                flatten(),
                dense(3, Linear),
            ],
        ),
        Case::new(
            "residual at the end",
            planaria_recipe::Shape::Vector(6),
            vec![dense(4, Tanh), residual(vec![dense(4, Linear)], vec![], Softmax)],
        ),
        Case::new(
            "concat at the end",
            planaria_recipe::Shape::Vector(6),
            vec![concat(vec![vec![dense(2, Linear)], vec![dense(3, Linear)]])],
        ),
    ]);
}
