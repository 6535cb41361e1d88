//! Searches for the codes that `coding::table` stores: prints its lines, machines by machines.
//! Run: `cargo run --release -p planaria-numerics --example code_search -- FIRST LAST > lines`
//! with the numbers of machines to search for. Takes about a second for each pair of sizes.

use planaria_numerics::coding::{
    Slot,
    generator::Generator,
    group::Decoder,
    quality::{choices, every_group, random_groups},
};

/// Groups that are looked at for one pair of sizes, over all seeds.
const LOOKS: u64 = 400_000;
/// Codes with no more groups than this are judged by all of them.
const ALL_MAX: u64 = 20_000;
/// Otherwise by this many random ones, and by climbing from the worst of them.
const SAMPLE: usize = 3000;
const CLIMBS: usize = 12;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|n| n.parse::<usize>().expect("a number"));
    let first = numbers.next().unwrap_or(1);
    let last = numbers.next().unwrap_or(32);
    for machines in first..=last {
        let codes: Vec<String> = (1..=machines)
            .map(|threshold| {
                let (seed, worst) = search(threshold, machines);
                // Rounded up, so that what is stored is never below what was found.
                let digits = 10f64.powi(2 - worst.log10().floor() as i32);
                format!("({seed}, {:?})", ((worst * digits).ceil() / digits) as f32)
            })
            .collect();
        println!("    // {machines}\n    {},", codes.join(", "));
    }
}

fn search(threshold: usize, machines: usize) -> (u32, f64) {
    let all = choices(machines, threshold) <= ALL_MAX;
    let groups = if all {
        every_group(machines, threshold)
    } else {
        random_groups(machines, threshold, SAMPLE)
    };
    let mut best = (1, f64::INFINITY);
    let mut looks = LOOKS;
    let free = threshold == 1 || threshold == machines;
    for seed in 1..if free { 2 } else { 1_000_000 } {
        let generator = Generator::from_seed(threshold, machines, seed);
        if let Some(worst) = judge(&generator, &groups, all, best.1, &mut looks) {
            best = (seed, worst);
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
    all: bool,
    best: f64,
    looks: &mut u64,
) -> Option<f64> {
    let mut found: Vec<(f64, &[Slot])> = vec![];
    let mut worst = 0.0;
    for members in groups {
        *looks = looks.saturating_sub(1);
        let condition = condition(generator, members, if all { worst } else { 0.0 });
        if condition >= best {
            return None;
        }
        worst = condition.max(worst);
        if !all {
            found.push((condition, members));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (condition, members) in found.into_iter().take(CLIMBS) {
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
