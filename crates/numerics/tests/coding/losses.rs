//! Machines that are lost in the middle of either product.

use crate::{
    cluster::{Cluster, Losses, Tally, alone, alone_second},
    numbers::{Numbers, normal, off, stream},
};
use planaria_numerics::coding::{
    Error, Paused, Precision, Slot, Standing,
    exact::Residue,
    gathering::{Gathering, Taken},
    generator::Generator,
    owed,
    plan::{Plan, SubBlock},
    ring,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn slots(count: usize) -> Vec<Slot> {
    (0..count as u16).map(Slot).collect()
}

fn plan<E: Numbers>(cluster: &Cluster<E>, present: &BTreeSet<Slot>) -> Plan {
    let places = 0..cluster.blocks.height();
    let plan = ring::arrange(&cluster.generator, E::PRECISION, places, present, None);
    plan.expect("good").ready().expect("enough")
}

fn under_losses<E: Numbers>(
    threshold: usize,
    machines: usize,
    rows: usize,
    one_in: u64,
    seed: usize,
) -> (f64, Tally) {
    let (width, columns) = (4, 1 + seed % 2);
    let mut draws = stream(seed, rows);
    let data = normal(&mut draws, rows * width);
    let weights = normal(&mut draws, width * columns);
    let slopes = normal(&mut draws, rows * columns);
    let cluster = Cluster::<E>::new(threshold, machines, width, &E::data(width, &data));
    let alive: BTreeSet<Slot> = slots(machines).into_iter().collect();
    let plan = plan(&cluster, &alive);
    let mut losses = Losses { alive, draws, one_in, left: 6 };
    let mut tally = Tally::default();
    let gathered = cluster.first(&plan, &E::weights(width, &weights), &mut losses, &mut tally);
    let sums = cluster.second(&gathered, &E::slopes(columns, &slopes), &mut losses, &mut tally);
    let first = off(&E::products(&gathered.products), &alone(width, &data, &weights));
    let second = off(&E::gradients(&sums), &alone_second(width, &data, &slopes));
    // Nothing that came is thrown away, and nothing but what was lost is computed again.
    let padded = cluster.blocks.height() * threshold;
    let share = cluster.blocks.height().div_ceil(machines) * threshold;
    assert_eq!(tally.discarded, 0);
    assert_eq!(tally.rows[0], padded);
    assert!(tally.extra[0] <= tally.losses[0] * share * 2, "{tally:?}");
    (first.max(second), tally)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn losses_do_not_change_products(
        machines in 1usize..=16, part in 0.0f64..1.0, rows in 1usize..300, seed in 0usize..10_000,
        one_in in 2u64..40,
    ) {
        let threshold = 1 + ((machines - 1) as f64 * part) as usize;
        let (f64_off, _) = under_losses::<f64>(threshold, machines, rows, one_in, seed);
        prop_assert!(f64_off <= 1e-9, "f64: {:e}", f64_off);
        let (exact_off, _) = under_losses::<Residue>(threshold, machines, rows, one_in, seed);
        prop_assert!(exact_off <= 1e-14, "exact: {:e}", exact_off);
    }
}

#[test]
fn one_loss_costs_at_most_its_share() {
    for (threshold, machines) in [(1, 2), (2, 3), (3, 6), (4, 8), (8, 16), (5, 32)] {
        let rows = threshold * machines * 5;
        let cluster = Cluster::<f64>::new(threshold, machines, 1, &vec![1.0; rows]);
        let all: BTreeSet<Slot> = slots(machines).into_iter().collect();
        let plan = plan(&cluster, &all);
        let share = rows / machines;
        for lost in slots(machines) {
            let mut gathering = Gathering::new(&plan);
            let mut alive = all.clone();
            alive.remove(&lost);
            // It has sent its first sub-block.
            let (sent, places) = plan.share(lost).next().expect("it has a share");
            assert_eq!(gathering.take(sent), Taken::New);
            let repaired = gathering.repair(&cluster.generator, Precision::F64, &alive);
            let new = repaired.expect("good").ready().expect("enough");
            let extra: usize = new.iter().map(|s| gathering.places(s.group).len()).sum();
            assert_eq!(extra, share - places.len());
            assert!(new.iter().all(|s| alive.contains(&s.slot) && s.group != sent.group));
            assert!(gathering.members(sent.group).contains(&lost), "what it sent is kept");
            // The extra rows are spread out.
            let most = alive.iter().map(|a| new.iter().filter(|s| s.slot == *a).count()).max();
            assert!(most.unwrap_or(0) <= new.len().div_ceil(machines - threshold) + 1, "{new:?}");

            let made_up = owed::make_up(&cluster.generator, Precision::F64, lost, &alive);
            let made_up = made_up.expect("good").ready().expect("enough");
            assert!(made_up.len() <= threshold, "at most threshold times its rows");
        }
    }
}

/// One machine is lost at some moment of either product: what is computed in its place.
fn extra_rows(threshold: usize, machines: usize, seed: usize) -> (usize, Tally) {
    let rows = threshold * machines * 6;
    let data = normal(&mut stream(seed, 1), rows);
    let cluster = Cluster::<f64>::new(threshold, machines, 1, &data);
    let alive: BTreeSet<Slot> = slots(machines).into_iter().collect();
    let plan = plan(&cluster, &alive);
    let one_in = 1 + (seed * 7 % (2 * threshold * machines)) as u64;
    let mut losses = Losses { alive, draws: stream(seed, 2), one_in, left: 1 };
    let mut tally = Tally::default();
    let gathered = cluster.first(&plan, &[1.0], &mut losses, &mut tally);
    cluster.second(&gathered, &vec![1.0; rows], &mut losses, &mut tally);
    (rows / machines, tally)
}

#[test]
fn a_loss_at_any_moment_costs_at_most_its_rows_and_its_rows_times_the_threshold() {
    let mut seen = [0, 0];
    for (threshold, machines) in [(1, 2), (2, 3), (3, 6), (4, 8), (6, 9), (8, 16)] {
        for seed in 0..60 {
            let (share, tally) = extra_rows(threshold, machines, seed);
            assert_eq!(tally.discarded, 0);
            assert!(tally.losses[0] + tally.losses[1] <= 1);
            // One that is lost in product 1 leaves groups that it had delivered for: these rows of
            // product 2 are made up for, the others are its successors'.
            assert!(tally.extra[0] <= share, "{threshold} of {machines}: {tally:?}");
            assert!(tally.extra[1] <= threshold * share, "{threshold} of {machines}: {tally:?}");
            seen[0] += usize::from(tally.extra[0] > 0);
            seen[1] += usize::from(tally.extra[1] > 0);
        }
    }
    assert!(seen[0] > 50 && seen[1] > 50, "{seen:?}");
}

#[test]
fn too_few_in_the_middle_are_a_pause_that_others_end() {
    let cluster = Cluster::<f64>::new(3, 6, 1, &[1.0; 60]);
    let here = slots(3).into_iter().collect();
    let plan = plan(&cluster, &here);
    let mut gathering = Gathering::new(&plan);
    let first = gathering.owing()[0];
    gathering.take(first);
    let before = gathering.clone();
    let few: BTreeSet<Slot> = [Slot(0), Slot(1)].into();
    let paused = Paused { have: 2, need: 3 };
    let code = &cluster.generator;
    assert_eq!(gathering.repair(code, Precision::F64, &few), Ok(Standing::Paused(paused)));
    assert_eq!(gathering, before);
    let up = owed::make_up(code, Precision::F64, Slot(2), &few);
    assert_eq!(up, Ok(Standing::Paused(paused)));
    // Another machine comes, and the iteration goes on with what there was.
    let again: BTreeSet<Slot> = [Slot(0), Slot(1), Slot(5)].into();
    let new =
        gathering.repair(code, Precision::F64, &again).expect("good").ready().expect("enough");
    assert!(new.iter().all(|s| s.slot == Slot(5)));
    assert_eq!(gathering.take(first), Taken::Again);
    let foreign = SubBlock { group: 0, slot: Slot(4) };
    assert_eq!(gathering.take(foreign), Taken::Unasked);
    assert_eq!(gathering.take(SubBlock { group: 99, slot: Slot(0) }), Taken::Unasked);
}

#[test]
fn groups_that_are_conditioned_badly_are_refused_in_the_middle_too() {
    // A code that was not searched for: some of its groups are far above the limit of f32.
    let bad = (1..200)
        .map(|seed| Generator::from_seed(8, 9, seed))
        .find(|code| (0..8).any(|block| code.coefficient(Slot(8), block).abs() < 1e-4))
        .expect("some seed is bad");
    let block = (0..8).find(|b| bad.coefficient(Slot(8), *b).abs() < 1e-4).expect("as found");
    let lost = Slot(block as u16);
    let plan = Plan::cyclic(8, 0..80, &slots(9)).expect("a ring").ready().expect("enough");
    let mut alive: BTreeSet<Slot> = slots(9).into_iter().collect();
    alive.remove(&lost);
    let mut gathering = Gathering::new(&plan);
    let before = gathering.clone();
    let error = gathering.repair(&bad, Precision::F32, &alive).expect_err("above the limit");
    assert!(matches!(error, Error::Condition { limit: 1e4, .. }), "{error}");
    assert!(error.to_string().contains("precision `f64`"), "{error}");
    assert_eq!(gathering, before);
    assert!(owed::make_up(&bad, Precision::F32, lost, &alive).is_err());
    assert!(ring::arrange(&bad, Precision::F32, 0..80, &alive, None).is_err());
    assert!(gathering.repair(&bad, Precision::F64, &alive).is_ok());
}
