//! The real data sets, where they are at hand.

mod support;

use planaria_data::scale::Scale;
use planaria_data::{Part, Source, open, peek};
use planaria_recipe::sections::Normalize;
use planaria_recipe::shape::Shape;
use support::{data, path, real};

fn counts(part: &Part) -> Vec<u64> {
    let mut counts = vec![0; part.source().classes().unwrap()];
    (0..part.len()).for_each(|p| counts[part.source().class(part.id(p)) as usize] += 1);
    counts
}

fn mean(source: &dyn Source, ids: u64) -> f64 {
    let scale = Scale::new(&Normalize::default(), 1).unwrap();
    let mut out = vec![0.0; source.shape().len()];
    let mut sum = 0.0;
    for id in 0..ids {
        source.read(id, &scale, &mut out).unwrap();
        sum += out.iter().map(|v| f64::from(*v)).sum::<f64>();
    }
    sum / ids as f64 / out.len() as f64
}

#[test]
fn mnist() {
    let Some(folder) = real("mnist") else { return };
    let mut section = data(&folder);
    section.test = path(&folder);
    let set = open(&section, 1).unwrap();
    assert_eq!(set.facts, peek(&section, 1).unwrap());
    assert_eq!(set.facts.input, Shape::Image { height: 28, width: 28, channels: 1 });
    assert_eq!((set.facts.train, set.facts.test, set.facts.classes()), (60_000, 10_000, Some(10)));
    let first: Vec<u32> = (0..5).map(|id| set.train.source().class(id)).collect();
    assert_eq!(first, [5, 0, 4, 1, 9]);
    let expect = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949];
    assert_eq!(counts(&set.train), expect);
    let mean = mean(set.train.source().as_ref(), 60_000);
    assert!((mean - 0.1307).abs() < 1e-4, "{mean}");
}

#[test]
fn fashion_mnist() {
    let Some(folder) = real("fashion-mnist") else { return };
    let set = open(&data(&folder), 1).unwrap();
    assert_eq!(counts(&set.train), [6000; 10]);
    let mean = mean(set.train.source().as_ref(), 60_000);
    assert!((mean - 0.2860).abs() < 1e-4, "{mean}");
}

#[test]
fn cifar_10() {
    let Some(folder) = real("cifar-10-binary") else { return };
    let mut section = data(&folder);
    section.test = path(&folder);
    let set = open(&section, 1).unwrap();
    assert_eq!(set.facts, peek(&section, 1).unwrap());
    assert_eq!(set.facts.input, Shape::Image { height: 32, width: 32, channels: 3 });
    assert_eq!(counts(&set.train), [5000; 10]);
    assert_eq!(counts(&set.test.unwrap()), [1000; 10]);
    let first: Vec<u32> = (0..4).map(|id| set.train.source().class(id)).collect();
    assert_eq!(first, [6, 9, 9, 4]);
    // Published means of the channels: 0.4914, 0.4822, 0.4465.
    let mean = mean(set.train.source().as_ref(), 50_000);
    assert!((mean - 0.4734).abs() < 1e-4, "{mean}");
}
