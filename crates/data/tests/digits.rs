//! The built-in digits: the same everywhere, balanced, and neither too easy nor too hard.

mod support;

use planaria_data::sources::digits::Digits;
use planaria_data::{Source, open};

#[test]
fn the_same_seed_draws_the_same_bytes_everywhere() {
    // FNV-1a over the first 200 images and classes, recorded once.
    let digits = Digits::new(1, 0, 200);
    let mut hash = 0xCBF2_9CE4_8422_2325u64;
    for id in 0..digits.len() {
        for byte in digits.pixels(id).into_iter().chain([digits.class(id) as u8]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
        }
    }
    assert_eq!(hash, 395_926_368_775_550_609);
}

#[test]
fn an_image_depends_on_its_number_alone() {
    let (few, many, later) =
        (Digits::new(3, 0, 10), Digits::new(3, 0, 1000), Digits::new(3, 7, 10));
    for id in (0..10).rev() {
        assert_eq!((few.class(id), few.pixels(id)), (many.class(id), many.pixels(id)));
        assert_eq!(later.pixels(id), many.pixels(id + 7));
        assert_eq!(many.class(id), many.class(id));
    }
    assert_ne!(few.pixels(0), Digits::new(4, 0, 10).pixels(0));
}

#[test]
fn classes_are_balanced_and_not_in_turn() {
    let digits = Digits::new(1, 0, 1000);
    let mut counts = [0; 10];
    (0..1000).for_each(|id| counts[digits.class(id) as usize] += 1);
    assert_eq!(counts, [100; 10]);
    assert_ne!(digits.class(0), digits.class(10).max(digits.class(20)).max(digits.class(30)));
    let in_turn = (0..1000).filter(|&id| u64::from(digits.class(id)) == id % 10).count();
    assert!(in_turn < 200, "{in_turn}");
}

#[test]
fn held_out_digits_are_others() {
    let mut section = support::data("digits");
    section.examples = Some(100);
    section.test = support::path("digits");
    let set = open(&section, 1).unwrap();
    assert_eq!((set.facts.train, set.facts.test), (100, 10_000));
    assert!(set.facts.files.is_empty());
}

/// Softmax regression on the pixels, trained with plain SGD.
struct Linear {
    weights: Vec<[f32; 10]>,
}

impl Linear {
    fn scores(&self, pixels: &[u8]) -> [f32; 10] {
        let mut scores = self.weights[784];
        for (pixel, weights) in pixels.iter().zip(&self.weights) {
            let x = f32::from(*pixel) / 255.0;
            (0..10).for_each(|c| scores[c] += x * weights[c]);
        }
        scores
    }

    fn step(&mut self, pixels: &[u8], class: usize, rate: f32) {
        let scores = self.scores(pixels);
        let top = scores.iter().copied().fold(f32::MIN, f32::max);
        let mut slopes = scores.map(|s| libm::expf(s - top));
        let sum: f32 = slopes.iter().sum();
        slopes.iter_mut().for_each(|s| *s *= rate / sum);
        slopes[class] -= rate;
        for (pixel, weights) in pixels.iter().chain([&255]).zip(&mut self.weights) {
            let x = f32::from(*pixel) / 255.0;
            (0..10).for_each(|c| weights[c] -= x * slopes[c]);
        }
    }
}

#[test]
fn a_linear_model_is_neither_lost_nor_enough() {
    let (train, test) = (Digits::new(1, 0, 12_000), Digits::new(1, 12_000, 2000));
    let mut model = Linear { weights: vec![[0.0; 10]; 785] };
    for epoch in 0..10 {
        let rate = 0.02 / (1.0 + epoch as f32);
        (0..train.len())
            .for_each(|id| model.step(&train.pixels(id), train.class(id) as usize, rate));
    }
    let right = (0..test.len()).filter(|&id| {
        let scores = model.scores(&test.pixels(id));
        let best = (0..10).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        best == Some(test.class(id) as usize)
    });
    let accuracy = right.count() as f64 / test.len() as f64;
    assert!((0.75..0.95).contains(&accuracy), "{accuracy}");
}
