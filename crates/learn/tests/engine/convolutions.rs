//! Convolutions of every geometry and by every method against the f64 reference and its finite
//! differences. A convolution stands behind another one, so that its input gradient shows too.

use crate::naive::{Case, check_all};
use crate::support::*;
use planaria_learn::Isa;
use planaria_recipe::Layer;
use planaria_recipe::model::{Activation, Conv2D, Padding, Size2};

/// `Conv2D` between a 1×1 convolution that makes its channels and a dense layer.
fn between(size: [usize; 2], channels: usize, middle: Conv2D) -> Case {
    let name = format!(
        "{}×{}×{channels}, {} filters {:?} by {:?} {:?}, {} groups, {:?}{}",
        size[0],
        size[1],
        middle.filters,
        [middle.kernel_size.height(), middle.kernel_size.width()],
        [middle.strides.height(), middle.strides.width()],
        middle.padding,
        middle.groups,
        middle.activation,
        if middle.use_bias { "" } else { ", no bias" },
    );
    let make = Layer::Conv2D(Conv2D { activation: Tanh, ..conv(channels, [1, 1]) });
    let layers = vec![make, Layer::Conv2D(middle), flatten(), dense(3, Linear)];
    Case::new(name, image(size[0], size[1], 2), layers).examples(2)
}

fn strided(filters: usize, kernel: [usize; 2], strides: [usize; 2], padding: Padding) -> Conv2D {
    Conv2D { strides: Size2::Pair(strides), padding, ..conv(filters, kernel) }
}

#[test]
fn kernels_strides_and_paddings() {
    let mut cases = vec![];
    for k in [1, 2, 3, 5, 7] {
        for s in [1, 2, 3] {
            for padding in [Valid, Same] {
                // Even and odd sizes, with and without pixels that no window reaches.
                let size = [7 + (k + s) % 3, 8 + (k * s) % 2];
                let (channels, filters) = ([3, 1, 5][s - 1], [4, 5, 1][s - 1]);
                let middle = strided(filters, [k, k], [s, s], padding);
                let use_bias = (k + s) % 2 == 0;
                cases.push(between(size, channels, Conv2D { use_bias, ..middle }));
            }
        }
    }
    check_all(cases);
}

#[test]
fn nothing_is_square() {
    let shapes = [
        ([5, 9], [1, 3], [1, 2]),
        ([9, 5], [3, 1], [2, 1]),
        ([6, 7], [2, 5], [3, 1]),
        ([7, 6], [5, 2], [1, 3]),
        ([4, 11], [4, 3], [2, 3]),
        ([8, 3], [1, 1], [3, 2]),
        ([3, 8], [2, 1], [4, 3]),
        ([1, 9], [1, 4], [1, 2]),
        ([9, 1], [3, 1], [2, 2]),
    ];
    check_all(shapes.into_iter().flat_map(|(size, kernel, strides)| {
        [Valid, Same].map(|padding| between(size, 3, strided(6, kernel, strides, padding)))
    }));
}

#[test]
fn kernels_wider_than_the_image() {
    check_all([
        between([2, 2], 3, strided(4, [5, 5], [1, 1], Same)),
        between([3, 2], 3, strided(4, [7, 7], [2, 2], Same)),
        between([1, 1], 16, strided(16, [3, 3], [1, 1], Same)),
        between([2, 1], 16, strided(32, [3, 3], [1, 1], Same)),
        between([1, 3], 5, strided(6, [3, 3], [2, 2], Same)),
    ]);
}

#[test]
fn channels() {
    let all = [1, 3, 5, 10, 16, 17, 32, 48];
    let mut cases = vec![];
    for (i, channels) in all.into_iter().enumerate() {
        for (kernel, stride) in [([3, 3], 1), ([3, 3], 2), ([1, 1], 1), ([2, 2], 2)] {
            let filters = all[(i * 3 + kernel[0] + stride) % all.len()];
            let padding = if i % 2 == 0 { Same } else { Valid };
            let middle = strided(filters, kernel, [stride, stride], padding);
            cases.push(between([5, 6], channels, Conv2D { activation: Relu, ..middle }));
        }
    }
    check_all(cases);
}

#[test]
fn groups() {
    let grouped = |filters, kernel, s, padding, groups, activation: Activation| Conv2D {
        groups,
        activation,
        ..strided(filters, kernel, [s, s], padding)
    };
    let mut cases = vec![];
    for (channels, filters, groups) in
        [(4, 6, 2), (32, 32, 2), (34, 18, 2), (6, 12, 6), (9, 3, 3), (16, 48, 16), (12, 12, 4)]
    {
        cases.push(between([6, 5], channels, grouped(filters, [3, 3], 1, Same, groups, Relu)));
        cases.push(between([5, 6], channels, grouped(filters, [3, 2], 2, Valid, groups, Linear)));
    }
    for channels in [2, 3, 16, 17, 40] {
        for (kernel, s, padding) in
            [([3, 3], 1, Same), ([3, 3], 1, Valid), ([5, 3], 2, Same), ([2, 2], 3, Valid)]
        {
            cases.push(between(
                [6, 7],
                channels,
                grouped(channels, kernel, s, padding, channels, Relu),
            ));
        }
    }
    let bare = grouped(5, [3, 3], 1, Same, 5, Linear);
    cases.push(between([4, 4], 5, Conv2D { use_bias: false, ..bare }));
    check_all(cases);
}

#[test]
fn winograd_tiles() {
    let mut cases = vec![];
    for (i, size) in
        [[3, 3], [4, 4], [5, 7], [6, 3], [8, 8], [7, 10], [13, 4], [17, 19]].into_iter().enumerate()
    {
        for padding in [Valid, Same] {
            let (channels, filters) = [(16, 16), (32, 16), (16, 48)][i % 3];
            let activation = [Relu, Linear][i % 2];
            let middle = strided(filters, [3, 3], [1, 1], padding);
            let middle = Conv2D { activation, use_bias: i % 3 != 1, ..middle };
            cases.push(between(size, channels, middle));
        }
    }
    // The input itself has 16 channels; two of them after one another; more tiles than are
    // gathered at once.
    cases.push(Case::new(
        "of the input",
        image(6, 5, 16),
        vec![conv3(32, Same, Relu), conv3(16, Valid, Relu), global(), dense(3, Linear)],
    ));
    cases.push(
        Case::new(
            "many tiles",
            image(21, 22, 16),
            vec![conv3(16, Same, Relu), global(), dense(3, Linear)],
        )
        .examples(3),
    );
    check_all(cases);
}

#[test]
fn gradients_through_relu_and_a_2x2_pool() {
    let mut cases = vec![];
    for (i, size) in
        [[4, 4], [6, 6], [5, 5], [7, 8], [8, 7], [9, 12], [14, 5]].into_iter().enumerate()
    {
        for (channels, filters) in [(16, 16), (32, 48), (48, 32), (16, 64)] {
            let make = Layer::Conv2D(Conv2D { activation: Tanh, ..conv(channels, [1, 1]) });
            let under = Conv2D { activation: Relu, use_bias: i != 2, ..conv(filters, [3, 3]) };
            let mut layers = vec![
                make,
                Layer::Conv2D(under),
                max_pool([2, 2], [2, 2], [Valid, Same][i % 2]),
                flatten(),
                dense(3, Linear),
            ];
            let name = format!("{size:?} {channels} to {filters}");
            cases.push(Case::new(name.clone(), image(size[0], size[1], 2), layers.clone()));
            layers.remove(0);
            let input = image(size[0], size[1], channels);
            cases.push(Case::new(format!("{name} of the input"), input, layers));
        }
    }
    // Two in a row, and a branch beside the pool, which must not take the short way.
    cases.push(Case::new(
        "two in a row",
        image(13, 14, 3),
        vec![
            conv3(16, Same, Relu),
            conv3(16, Valid, Relu),
            max_pool([2, 2], [2, 2], Valid),
            conv3(32, Valid, Relu),
            max_pool([2, 2], [2, 2], Valid),
            flatten(),
            dense(3, Linear),
        ],
    ));
    cases.push(Case::new(
        "a pool and another user",
        image(6, 6, 16),
        vec![
            conv3(16, Valid, Relu),
            concat(vec![
                vec![max_pool([2, 2], [2, 2], Valid)],
                vec![average_pool([2, 2], [2, 2], Valid)],
            ]),
            flatten(),
            dense(3, Linear),
        ],
    ));
    cases.push(Case::new(
        "a pool in a branch, its convolution outside",
        image(6, 6, 16),
        vec![
            conv3(16, Valid, Relu),
            concat(vec![
                vec![max_pool([2, 2], [2, 2], Valid)],
                vec![max_pool([2, 2], [2, 2], Valid), conv3(16, Same, Relu)],
            ]),
            flatten(),
            dense(3, Linear),
        ],
    ));
    cases.push(Case::new(
        "the same input for two",
        image(6, 6, 3),
        vec![
            conv3(16, Same, Tanh),
            concat(vec![
                vec![conv3(16, Valid, Relu), max_pool([2, 2], [2, 2], Valid)],
                vec![conv3(32, Valid, Relu), max_pool([2, 2], [2, 2], Valid)],
            ]),
            flatten(),
            dense(3, Linear),
        ],
    ));
    check_all(cases);
}

#[test]
fn every_instruction_set() {
    let shapes = [
        ([6, 7], 16, strided(32, [3, 3], [1, 1], Same)),
        ([6, 7], 17, strided(19, [3, 3], [2, 2], Same)),
        ([5, 6], 3, strided(5, [5, 5], [1, 1], Valid)),
        ([5, 6], 18, Conv2D { groups: 18, ..strided(18, [3, 3], [1, 1], Same) }),
    ];
    check_all(Isa::all().into_iter().flat_map(|isa| {
        shapes.clone().map(|(size, channels, middle)| {
            let mut case = between(size, channels, Conv2D { activation: Relu, ..middle });
            case.name = format!("{} {}", isa.name(), case.name);
            case.isa = Some(isa);
            case
        })
    }));
}
