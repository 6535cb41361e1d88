//! Plans: cover, loads, ring orders, hand-over, unequal machines, costs.

use crate::numbers::stream;
use planaria_numerics::coding::{
    Error, Paused, Precision, Slot, Standing, blocks::Blocks, cost::cost, exact::Residue,
    generator::Generator, handover, plan::Plan, quality, ring, speeds, table,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn slots(count: usize) -> Vec<Slot> {
    (0..count as u16).map(Slot).collect()
}

fn cover(plan: &Plan) {
    let mut next = plan.places().start;
    for group in plan.groups() {
        assert_eq!(group.places.start, next);
        next = group.places.end;
        let distinct: BTreeSet<_> = group.members.iter().collect();
        assert_eq!((distinct.len(), group.members.len()), (plan.threshold(), plan.threshold()));
    }
    assert_eq!(next, plan.places().end);
}

#[test]
fn every_row_has_as_many_members_as_the_threshold() {
    for machines in 1..=32 {
        for threshold in 1..=machines {
            for rows in [1, threshold, 7 * threshold + 3, 1000 + machines] {
                let blocks = Blocks::new(rows, threshold).expect("rows");
                let places = 0..blocks.height();
                let plan = Plan::cyclic(threshold, places, &slots(machines))
                    .expect("a ring")
                    .ready()
                    .expect("enough");
                cover(&plan);
                let loads: Vec<usize> = plan.ring().iter().map(|s| plan.load(*s)).collect();
                let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
                assert!(most - least <= threshold, "{machines}, {threshold}: {loads:?}");
                assert_eq!(loads.iter().sum::<usize>(), blocks.height() * threshold);
                for slot in plan.ring() {
                    let joined: usize = plan.places_of(*slot).iter().map(|r| r.len()).sum();
                    assert_eq!(joined, plan.load(*slot));
                }
            }
        }
    }
}

#[test]
fn places_of_a_batch_are_covered_alone() {
    let plan = Plan::cyclic(3, 20..35, &slots(5)).expect("a ring").ready().expect("enough");
    assert_eq!(plan.places(), 20..35);
    cover(&plan);
}

#[test]
fn loads_are_even_and_fall_when_a_machine_joins() {
    let rows = 20_000;
    let load = |machines| {
        let places = 0..Blocks::new(rows, 4).expect("rows").height();
        let plan = Plan::cyclic(4, places, &slots(machines)).expect("a ring").ready().unwrap();
        let most = slots(machines).iter().map(|s| plan.load(*s)).max().unwrap();
        let least = slots(machines).iter().map(|s| plan.load(*s)).min().unwrap();
        let share = rows as f64 / machines as f64;
        assert!(most as f64 <= share * 1.01 && least as f64 >= share * 0.99);
        (least, most)
    };
    for machines in 4..32 {
        assert!(load(machines + 1).1 < load(machines).0);
    }
}

#[test]
fn too_few_machines_are_a_pause() {
    let paused = Paused { have: 2, need: 3 };
    assert_eq!(paused.to_string(), "paused, have 2, need 3");
    assert_eq!(Plan::cyclic(3, 0..10, &slots(2)), Ok(Standing::Paused(paused)));
    let generator = Generator::stored(3, 6).expect("a code");
    let present = slots(2).into_iter().collect();
    let plan = ring::arrange(&generator, Precision::F64, 0..10, &present, None);
    assert_eq!(plan, Ok(Standing::Paused(paused)));
    let speeds = [(Slot(0), 1.0), (Slot(4), 2.0)];
    let plan = speeds::arrange(&generator, Precision::F64, 0..10, &speeds);
    assert_eq!(plan, Ok(Standing::Paused(paused)));
    assert_eq!(Plan::cyclic(3, 5..5, &slots(4)), Err(Error::NoRows));
    assert!(Plan::cyclic(2, 0..9, &[Slot(1), Slot(1), Slot(2)]).is_err());
}

#[test]
fn stored_codes_are_as_good_as_the_table_says() {
    for machines in 1..=32 {
        for threshold in 1..=machines {
            let generator = Generator::stored(threshold, machines).expect("a code");
            let quality = quality::check(&generator, Precision::F64).expect("good for f64");
            assert!(quality.median <= quality.most && quality.most <= quality.worst * 1.1);
            let f32 = quality::check(&generator, Precision::F32);
            let worst = f64::from(table::entry(threshold, machines).worst);
            assert_eq!(f32.is_ok(), worst <= 1e4, "{threshold} of {machines}: {f32:?}");
        }
    }
    let small = quality::check(&Generator::stored(4, 8).expect("a code"), Precision::F32);
    assert!(small.expect("good").worst <= 20.0);
}

#[test]
fn a_code_that_is_not_the_stored_one_is_found_out() {
    let other = Generator::from_seed(4, 8, 3);
    let error = quality::check(&other, Precision::F64).expect_err("another code");
    assert!(matches!(error, Error::Table { .. }), "{error}");
}

fn present(machines: usize, count: usize, draw: usize) -> BTreeSet<Slot> {
    let mut draws = stream(machines * 100 + count, draw);
    let mut left = slots(machines);
    while left.len() > count {
        left.remove(draws.below(left.len() as u64) as usize);
    }
    left.into_iter().collect()
}

#[test]
fn ring_orders_are_never_worse_than_ascending() {
    for (threshold, machines, count) in
        [(2, 5, 4), (4, 8, 7), (8, 16, 12), (8, 32, 20), (16, 32, 24)]
    {
        let generator = Generator::stored(threshold, machines).expect("a code");
        for draw in 0..4 {
            let present = present(machines, count, draw);
            let ascending: Vec<Slot> = present.iter().copied().collect();
            let plain = ring::worst_window(&generator, &ascending).expect("slots");
            let plan = ring::arrange(&generator, Precision::F64, 0..1000, &present, None)
                .expect("good")
                .ready()
                .expect("enough");
            cover(&plan);
            let best = ring::worst_window(&generator, plan.ring()).expect("slots");
            assert!(best <= plain * 1.0001, "{best} of {plain}");
            assert_eq!(plan.ring().iter().copied().collect::<BTreeSet<_>>(), present);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn plans_follow_each_other_with_little_waste(
        machines in 2usize..=24, seed in 0usize..1000, exact: bool,
    ) {
        let threshold = 1 + seed % machines.min(8);
        let (mut kept, mut blind) = (0, 0);
        let mut draws = stream(seed, 5);
        let mut here: BTreeSet<Slot> = slots(machines).into_iter().collect();
        let places = 0..997;
        let code = Generator::stored(threshold, machines).expect("a code");
        let field: Generator<Residue> = Generator::cauchy(threshold, machines).expect("a code");
        let arrange = |here: &BTreeSet<Slot>, before: Option<&Plan>| {
            let plan = if exact {
                ring::arrange(&field, Precision::Exact, places.clone(), here, before)
            } else {
                ring::arrange(&code, Precision::F64, places.clone(), here, before)
            };
            plan.expect("good").ready().expect("enough")
        };
        let mut plan = arrange(&here, None);
        for _ in 0..6 {
            let slot = Slot(draws.below(machines as u64) as u16);
            if !here.remove(&slot) || here.len() < threshold {
                here.insert(slot);
            }
            let next = arrange(&here, Some(&plan));
            cover(&next);
            check_changes(&plan, &next);
            kept += handover::waste(&plan, &next);
            blind += handover::waste(&plan, &arrange(&here, None));
            plan = next;
        }
        prop_assert!(kept <= blind, "{} of {}", kept, blind);
    }
}

fn check_changes(before: &Plan, after: &Plan) {
    let rows = |ranges: &[std::ops::Range<usize>]| ranges.iter().map(|r| r.len()).sum::<usize>();
    let mut waste = 0;
    for change in handover::changes(before, after) {
        let (old, new) = (before.load(change.slot), after.load(change.slot));
        let (kept, taken) = (rows(&change.kept), rows(&change.taken));
        let dropped = rows(&change.dropped);
        assert_eq!((kept + dropped, kept + taken), (old, new), "{change:?}");
        if old > 0 && new > 0 {
            waste += taken + dropped - old.abs_diff(new);
        }
    }
    assert_eq!(handover::waste(before, after), waste);
    let (moved, wasted) = handover::moved(before, after);
    assert!(wasted <= moved && 2 * wasted == waste, "{wasted} of {moved}");
    if before == after {
        assert_eq!(waste, 0);
    }
}

#[test]
fn without_arrivals_and_losses_nothing_changes() {
    let generator = Generator::stored(4, 12).expect("a code");
    let here = present(12, 9, 1);
    let arrange = |before| {
        ring::arrange(&generator, Precision::F64, 0..800, &here, before).unwrap().ready().unwrap()
    };
    let plan = arrange(None);
    assert_eq!(arrange(Some(&plan)), plan);
}

#[test]
fn one_who_returns_sits_where_its_rows_are() {
    let taken = BTreeSet::from([Slot(0), Slot(2)]);
    assert_eq!(handover::seat(5, &taken, &[Slot(2), Slot(4)]), Some(Slot(4)));
    assert_eq!(handover::seat(5, &taken, &[]), Some(Slot(1)));
    assert_eq!(handover::seat(5, &taken, &[Slot(9)]), Some(Slot(1)));
    assert_eq!(handover::seat(2, &BTreeSet::from([Slot(0), Slot(1)]), &[]), None);
}

proptest! {
    #[test]
    fn unequal_machines_are_filled(
        speeds in prop::collection::vec(0.05f64..20.0, 1..=32), part in 0.0f64..1.0,
    ) {
        let threshold = 1 + ((speeds.len() - 1) as f64 * part) as usize;
        let speeds: Vec<(Slot, f64)> = slots(32).into_iter().zip(speeds).collect();
        let loads = speeds::loads(threshold, &speeds).expect("speeds");
        let sum: f64 = loads.iter().map(|(_, load)| load).sum();
        prop_assert!((sum - threshold as f64).abs() <= 1e-12 * threshold as f64, "{}", sum);
        prop_assert!(loads.iter().all(|(_, load)| *load > 0.0 && *load <= 1.0));
        let fillings = speeds::fill(threshold, &loads);
        prop_assert!(fillings.len() <= speeds.len());
        let whole: f64 = fillings.iter().map(|f| f.share).sum();
        prop_assert!((whole - 1.0).abs() <= 1e-12, "{}", whole);
        for (slot, load) in &loads {
            let own = fillings.iter().filter(|f| f.members.contains(slot));
            let filled: f64 = own.map(|f| f.share).sum();
            prop_assert!((filled - load).abs() <= 1e-12, "{}: {} of {}", slot, filled, load);
        }
        let field = Generator::cauchy(threshold, 32).expect("a code");
        let plan = speeds::arrange(&field, Precision::Exact, 3..5003, &speeds);
        let plan = plan.expect("good").ready().expect("enough");
        cover(&plan);
        prop_assert_eq!(plan.places(), 3..5003);
    }
}

#[test]
fn unequal_machines_are_faster_than_when_treated_alike() {
    let speeds: Vec<(Slot, f64)> =
        slots(6).into_iter().zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).collect();
    let generator = Generator::stored(3, 6).expect("a code");
    let time = |plan: &Plan| {
        speeds.iter().map(|(slot, speed)| plan.load(*slot) as f64 / speed).fold(0.0, f64::max)
    };
    let filled = speeds::arrange(&generator, Precision::F32, 0..6000, &speeds);
    let filled = filled.expect("good").ready().expect("enough");
    let alike = Plan::cyclic(3, 0..6000, &slots(6)).expect("a ring").ready().expect("enough");
    let gain = time(&alike) / time(&filled);
    assert!((gain - 3.5).abs() < 0.01, "{gain}");
    assert!(speeds::loads(3, &[(Slot(1), f64::NAN)]).is_err());
    assert!(speeds::loads(3, &[(Slot(1), 0.0)]).is_err());
}

#[test]
fn costs_are_those_of_the_scheme() {
    let (rows, width) = (20_000, 220);
    let blocks = Blocks::new(rows, 4).expect("rows");
    let generator = Generator::stored(4, 8).expect("a code");
    for count in 4..=8 {
        let plan = Plan::cyclic(4, 0..blocks.height(), &slots(count)).unwrap().ready().unwrap();
        let cost = cost(&generator, &plan, blocks, width, 1, 4);
        assert_eq!(cost.storage_bytes, 5000 * 220 * 4);
        assert_eq!(cost.work_macs, 2 * 20_000 * 220);
        assert_eq!(cost.traffic_values, 20_000);
        assert_eq!(cost.losses, count - 4);
        let parity = count - 4;
        let expect = (4 * rows * parity / count) as f64;
        assert!((cost.decode_macs as f64 - expect).abs() <= 4.0 * 4.0 * 4.0, "{cost:?}");
        let work = (cost.work_macs / 2) as f64;
        assert!(cost.decode_macs as f64 <= 2.0 * 4.0 / width as f64 * work);
    }
}
