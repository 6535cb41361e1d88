//! Searches for the codes that `coding::table` stores: prints its lines, machines by machines.
//! Run: `cargo run --release -p planaria-numerics --example code_search -- FIRST LAST > lines`
//! with the numbers of machines to search for. Takes about a second for each pair of sizes.
//! Two more numbers are the thresholds to search for, and a fifth how many times as long to search.

use planaria_numerics::coding::{
    Slot,
    generator::Generator,
    group::Decoder,
    quality::{choices, every_group, random_groups},
};
use std::io::Write;

/// Groups that are looked at for one pair of sizes, over all seeds.
const LOOKS: u64 = 600_000;
/// The same for codes of many machines and groups, where a look takes longer and tells less.
const MANY_MACHINES: usize = 19;
const LOOKS_MANY: u64 = 60_000;
/// Codes with no more groups than this are judged by all of them.
const ALL_MAX: u64 = 50_000;
/// Otherwise by this many random ones, and by climbing from the worst of them.
const SAMPLE: usize = 3000;
const CLIMBS: usize = 12;
/// The best of those are then judged by more.
const FINALISTS: usize = 3;
const SAMPLE_FINAL: usize = 30_000;
const CLIMBS_FINAL: usize = 24;

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|n| n.parse::<usize>().expect("a number"));
    let first = numbers.next().unwrap_or(1);
    let last = numbers.next().unwrap_or(32);
    let from = numbers.next().unwrap_or(1);
    let to = numbers.next().unwrap_or(last);
    let patience = numbers.next().unwrap_or(1) as u64;
    for machines in first..=last {
        let codes: Vec<String> = (from..=to.min(machines))
            .map(|threshold| {
                let (seed, worst) = search(threshold, machines, patience);
                format!("({seed}, {:?})", rounded_up(worst))
            })
            .collect();
        let line = format!("    // {machines}\n    {},\n", codes.join(", "));
        std::io::stdout().write_all(line.as_bytes())?;
    }
    Ok(())
}

/// To three digits, so that what is stored is never below what was found.
fn rounded_up(worst: f64) -> f32 {
    let digits = libm::pow(10.0, 2.0 - libm::floor(libm::log10(worst)));
    ((worst * digits).ceil() / digits) as f32
}

/// The best seed, and the worst condition of its code.
fn search(threshold: usize, machines: usize, patience: u64) -> (u32, f64) {
    let all = choices(machines, threshold) <= ALL_MAX;
    if all {
        let groups = every_group(machines, threshold);
        return best_seeds(threshold, machines, &groups, 0, 1, patience)[0];
    }
    let groups = random_groups(machines, threshold, SAMPLE);
    let finalists = best_seeds(threshold, machines, &groups, CLIMBS, FINALISTS, patience);
    let groups = random_groups(machines, threshold, SAMPLE_FINAL);
    let mut best = (finalists[0].0, f64::INFINITY);
    for (seed, worst) in finalists {
        let generator = Generator::from_seed(threshold, machines, seed);
        let more = judge(&generator, &groups, CLIMBS_FINAL, best.1, &mut u64::MAX.clone());
        if let Some(more) = more.map(|more| more.max(worst)).filter(|more| *more < best.1) {
            best = (seed, more);
        }
    }
    best
}

/// The `count` best seeds by these groups and as many climbs, best first.
fn best_seeds(
    threshold: usize,
    machines: usize,
    groups: &[Vec<Slot>],
    climbs: usize,
    count: usize,
    patience: u64,
) -> Vec<(u32, f64)> {
    let mut best: Vec<(u32, f64)> = vec![];
    let many = machines > MANY_MACHINES && climbs > 0;
    let mut looks = patience * if many { LOOKS_MANY } else { LOOKS };
    // Replication, and a code without parity, have nothing to choose.
    let seeds = if threshold == 1 || threshold == machines { 2 } else { 1_000_000 };
    for seed in 1..seeds {
        let generator = Generator::from_seed(threshold, machines, seed);
        let last = best.get(count - 1).map_or(f64::INFINITY, |last| last.1);
        if let Some(worst) = judge(&generator, groups, climbs, last, &mut looks) {
            best.insert(best.partition_point(|b| b.1 <= worst), (seed, worst));
            best.truncate(count);
        }
        if looks == 0 {
            break;
        }
    }
    best
}

/// The worst condition, or `None` as soon as it is not below `best`.
fn judge(
    generator: &Generator<f64>,
    groups: &[Vec<Slot>],
    climbs: usize,
    best: f64,
    looks: &mut u64,
) -> Option<f64> {
    let mut found: Vec<(f64, &[Slot])> = vec![];
    let mut worst = 0.0;
    for members in groups {
        *looks = looks.saturating_sub(1);
        // The last of those to climb from; what is better need not be known.
        let floor = if climbs == 0 { worst } else { found.get(climbs).map_or(0.0, |f| f.0) };
        let condition = condition(generator, members, floor);
        if condition >= best {
            return None;
        }
        worst = condition.max(worst);
        if climbs > 0 && condition > floor {
            let at = found.partition_point(|(other, _)| *other >= condition);
            found.insert(at, (condition, members));
            found.truncate(climbs + 1);
        }
    }
    for (condition, members) in found {
        worst = worst.max(climb(generator, members, condition, looks));
        if worst >= best {
            return None;
        }
    }
    Some(worst)
}

/// Changes one member at a time for the worse, until no change makes the condition worse.
fn climb(generator: &Generator<f64>, members: &[Slot], start: f64, looks: &mut u64) -> f64 {
    let (mut members, mut worst) = (members.to_vec(), start);
    loop {
        let mut next = None;
        for place in 0..members.len() {
            for slot in generator.slots().filter(|slot| !members.contains(slot)) {
                let mut other = members.clone();
                other[place] = slot;
                *looks = looks.saturating_sub(1);
                let condition = condition(generator, &other, worst);
                if condition > worst {
                    worst = condition;
                    next = Some(other);
                }
            }
        }
        match next {
            Some(better) => members = better,
            None => return worst,
        }
    }
}

/// The condition where it is above `floor`; otherwise something not above it.
fn condition(generator: &Generator<f64>, members: &[Slot], floor: f64) -> f64 {
    match Decoder::new(generator, members) {
        Err(_) => f64::INFINITY,
        Ok(decoder) if decoder.condition_bound() <= floor => 0.0,
        Ok(decoder) => decoder.condition(generator),
    }
}
