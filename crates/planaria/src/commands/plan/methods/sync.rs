//! Who begins with how many shards, and what redundancy costs, for `planaria plan`.

use planaria_coordinator::methods::sync::deal::deal;
use planaria_protocol::launch::Size;
use planaria_recipe::Plan;

/// Equal shares that are listed one by one.
const SHARES_MAX: usize = 8;

/// Shards of each worker before speeds are measured.
pub fn first_deal(plan: &Plan, size: Size) -> Vec<usize> {
    let speeds: Vec<_> = (0..size.workers).map(|worker| (worker, 1.0)).collect();
    let shares = deal(plan.recipe.train.shards as u32, &speeds);
    shares.iter().map(|share| share.shards.len()).collect()
}

/// The same in words; runs of equal shares are written as one.
pub fn shares(plan: &Plan, size: Size) -> String {
    let dealt = shares_text(&first_deal(plan, size));
    let redundancy = redundancy_text(plan.recipe.train.redundancy, size);
    format!("dealt       {dealt} shards, until speeds are measured\n{redundancy}")
}

/// What redundancy gives and costs; nothing without any.
fn redundancy_text(redundancy: usize, size: Size) -> String {
    if redundancy == 0 {
        return String::new();
    }
    let each = redundancy + 1;
    let fewer = match (size.workers_min as usize) < each {
        true => format!("; with fewer than {each} workers on as many as there are"),
        false => String::new(),
    };
    format!(
        "redundancy  each shard on {each} workers: {redundancy} may be lost or late in a step \
         without waiting, for up to {each} times the computing{fewer}\n"
    )
}

fn shares_text(shares: &[usize]) -> String {
    let runs = shares.chunk_by(|a, b| a == b);
    let many = |run: &[usize]| match run.len() {
        n if n > SHARES_MAX => format!("{n} × {}", run[0]),
        _ => run.iter().map(usize::to_string).collect::<Vec<_>>().join("/"),
    };
    runs.map(many).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redundancy_costs_is_said() {
        let size = |workers_min| Size { workers: 4, workers_min, servers: 1, threads: 1 };
        assert_eq!(redundancy_text(0, size(1)), "");
        let two = "redundancy  each shard on 2 workers: 1 may be lost or late in a step without \
                   waiting, for up to 2 times the computing";
        assert_eq!(redundancy_text(1, size(2)), format!("{two}\n"));
        let fewer = "; with fewer than 2 workers on as many as there are\n";
        assert_eq!(redundancy_text(1, size(1)), format!("{two}{fewer}"));
    }

    #[test]
    fn shares_are_listed_or_summed_up() {
        for (shares, expect) in [
            (&[3, 3, 2][..], "3/3/2"),
            (&[8], "8"),
            (&[1; 20], "20 × 1"),
            (&[2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0], "2/9 × 1/0"),
        ] {
            assert_eq!(shares_text(shares), expect);
        }
    }
}
