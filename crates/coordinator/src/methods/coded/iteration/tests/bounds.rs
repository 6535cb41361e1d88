//! What an iteration may cost: decoders share their work, and a loss costs its rows.

use super::*;

/// A plan for all machines of a code.
fn begun(lab: &mut Lab) -> (Iteration, BTreeSet<Slot>) {
    let alive: BTreeSet<Slot> = lab.code.generator.slots().collect();
    alive.iter().for_each(|slot| lab.start(*slot));
    let places = 0..lab.blocks.height();
    let plan = ring::arrange(&lab.code.generator, Precision::Exact, places, &alive, None);
    (Iteration::new(plan.unwrap().ready().unwrap(), &lab.code), alive)
}

#[test]
fn no_machine_decodes_more_than_two_groups() {
    for machines in 1..=16 {
        for threshold in 1..=machines {
            let mut lab = Lab::new(threshold, machines, 20 * machines, 1);
            let (mut iteration, alive) = begun(&mut lab);
            let (orders, _) = iteration.orders(&lab.code, &alive).unwrap();
            let mut groups: BTreeMap<Slot, usize> = BTreeMap::new();
            for (slot, order) in orders {
                if matches!(order, Order::Decode { .. }) {
                    *groups.entry(slot).or_default() += 1;
                }
            }
            assert_eq!(groups.values().sum::<usize>(), machines, "each group has a decoder");
            // A machine multiplies `threshold` groups, so this is 2·L/d of its own work, times the
            // parity's share.
            let most = groups.values().copied().max();
            assert!(most <= Some(2), "{threshold} of {machines}: {groups:?}");
        }
    }
}

#[test]
fn one_loss_costs_at_most_its_rows_and_its_rows_times_the_threshold() {
    let (mut seen, mut most) = (0, 0);
    for (threshold, machines) in [(1, 3), (2, 4), (3, 6), (4, 8)] {
        let rows = threshold * machines * 5;
        for seed in 0..150 {
            let mut lab = Lab::new(threshold, machines, rows, seed);
            let (mut iteration, mut alive) = begun(&mut lab);
            let mut draws = Stream::new(seed, Purpose::Code, 11, machines as u64);
            let (moment, victim) = (draws.below(200), draws.below(machines as u64) as u16);
            for turn in 0..20_000 {
                lab.order(iteration.orders(&lab.code, &alive).unwrap().0);
                if iteration.is_finished() {
                    break;
                }
                if turn == moment {
                    alive.remove(&Slot(victim));
                    lab.machines.remove(&Slot(victim));
                    iteration.lost(Slot(victim));
                    continue;
                }
                lab.go_on(draws.below(1 << 20), &mut iteration);
            }
            assert!(iteration.is_finished(), "seed {seed}");
            let (extra, share) = (iteration.rows().extra, (rows / machines) as u64);
            assert!(
                extra <= share + threshold as u64 * share,
                "{threshold} of {machines}, seed {seed}: {extra} of {share}"
            );
            (seen, most) = (seen + u64::from(extra > 0), most.max(extra));
        }
    }
    assert!(seen > 100 && most > 5, "losses in the middle: {seen}, {most}");
}
