//! Fractional repetition: any tolerated loss leaves every part, and the same bits.

use crate::numbers::stream;
use planaria_numerics::coding::{Error, repetition::Repetition};

#[test]
fn every_tolerated_loss_leaves_the_same_sum() {
    for workers in 1..=10usize {
        for redundancy in 0..workers {
            let plan = Repetition::new(workers, redundancy).expect("enough workers");
            let shards: Vec<f32> = {
                let mut draws = stream(workers, redundancy);
                (0..40).map(|_| draws.normal()).collect()
            };
            let sum = |part| -> f32 { shards[plan.shards(part, 40)].iter().sum() };
            let answers: Vec<f32> = (0..workers).map(|w| sum(plan.part_of(w))).collect();
            let total = |chosen: Vec<usize>| -> f32 { chosen.iter().map(|w| answers[*w]).sum() };
            let whole = total(plan.choose(|_| true).expect("all are there"));
            let plain: f64 = shards.iter().map(|v| f64::from(*v)).sum();
            let size: f64 = shards.iter().map(|v| f64::from(v.abs())).sum();
            assert!((f64::from(whole) - plain).abs() <= 1e-6 * size);
            for lost in (0u32..1 << workers).filter(|l| l.count_ones() as usize <= redundancy) {
                let chosen = plan.choose(|w| lost >> w & 1 == 0).expect("one of each is there");
                assert!(total(chosen) == whole, "the same bits");
            }
        }
    }
}

#[test]
fn parts_cover_the_shards_once() {
    for (workers, redundancy, shards) in [(6, 1, 16), (7, 2, 5), (12, 3, 64), (5, 0, 3)] {
        let plan = Repetition::new(workers, redundancy).expect("enough workers");
        let all: Vec<usize> =
            (0..plan.parts()).flat_map(|part| plan.shards(part, shards)).collect();
        assert_eq!(all, (0..shards).collect::<Vec<_>>());
        for part in 0..plan.parts() {
            let holders: Vec<usize> = plan.holders(part).collect();
            assert!(holders.len() > redundancy && holders.iter().all(|w| plan.part_of(*w) == part));
        }
    }
}

#[test]
fn too_much_is_said_to_be_too_much() {
    let error = Repetition::new(3, 3).expect_err("four copies on three workers");
    assert_eq!(error, Error::Redundancy { workers: 3, copies: 4 });
    let plan = Repetition::new(4, 1).expect("enough");
    let error = plan.choose(|w| w % 2 == 0).expect_err("part 1 is gone");
    assert_eq!(error, Error::PartLost { part: 1, holders: vec![1, 3] });
}
