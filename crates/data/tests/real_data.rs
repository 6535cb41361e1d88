//! The real data sets, where they are at hand.

mod support;

use planaria_data::scale::Scale;
use planaria_data::{Part, Source, Targets, open, peek};
use planaria_recipe::sections::Normalize;
use planaria_recipe::shape::Shape;
use support::{data, path, real};

fn classes(part: &Part, ids: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut targets = Targets::default();
    let ids: Vec<u64> = ids.collect();
    part.source().targets(&ids, &mut Vec::new(), &mut targets).unwrap();
    match targets {
        Targets::Classes(classes) => classes,
        Targets::Values(_) => unreachable!("these sets have classes"),
    }
}

fn counts(part: &Part) -> Vec<u64> {
    let mut counts = vec![0; part.source().classes().unwrap()];
    let ids = (0..part.len()).map(|place| part.id(place));
    classes(part, ids).into_iter().for_each(|class| counts[class as usize] += 1);
    counts
}

fn mean(source: &dyn Source, ids: u64) -> f64 {
    let scale = Scale::new(&Normalize::default(), 1).unwrap();
    let (mut out, mut room) = (vec![0.0; source.shape().len()], Vec::new());
    let mut sum = 0.0;
    for id in 0..ids {
        source.read(&[id], &scale, &mut room, &mut out).unwrap();
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
    let first = classes(&set.train, 0..5);
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
    let first = classes(&set.train, 0..4);
    assert_eq!(first, [6, 9, 9, 4]);
    // Published means of the channels: 0.4914, 0.4822, 0.4465.
    let mean = mean(set.train.source().as_ref(), 50_000);
    assert!((mean - 0.4734).abs() < 1e-4, "{mean}");
}
