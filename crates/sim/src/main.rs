//! Runs seeds: `planaria-sim --seeds 1000`, or one of them with everything that happens in it.

use clap::Parser;
use planaria_sim::lab::Lab;
use planaria_sim::scale::measure;
use planaria_sim::{Options, run};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

/// Runs simulated runs with faults, and checks that what must hold does.
#[derive(Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// This seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Say everything that happens.
    #[arg(long)]
    trace: bool,
    /// Workers, in place of those that the seed chooses.
    #[arg(long)]
    workers: Option<u32>,
    /// Workers beyond the first that compute each shard, in place of what the seed chooses.
    #[arg(long)]
    redundancy: Option<u32>,
    /// Whether runs are coded, in place of what the seed chooses.
    #[arg(long)]
    coded: Option<bool>,
    /// Let nothing go wrong.
    #[arg(long)]
    calm: bool,
    /// Measure what decisions cost with 10 to 1,000 workers instead.
    #[arg(long)]
    scale: bool,
    /// Go on after a failure.
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = std::io::stdout().lock();
    let Arguments { workers, redundancy, coded, calm, trace, .. } = arguments;
    if arguments.scale {
        return show_costs(&mut out);
    }
    let options = Options { workers, redundancy, coded, calm };
    let seeds = match arguments.seed {
        Some(seed) => seed..seed + 1,
        None => arguments.from..arguments.from + arguments.seeds,
    };
    let mut lab = Lab::default();
    let (mut failed, mut events, mut seconds, mut sessions) = (0u64, 0, 0.0, 0);
    let mut struck: BTreeMap<&str, u64> = BTreeMap::new();
    let count = seeds.end - seeds.start;
    for seed in seeds {
        let outcome = if trace {
            let mut say = |line: &str| {
                let _ = writeln!(out, "{line}");
            };
            run(&mut lab, seed, options, Some(Box::new(&mut say)))
        } else {
            run(&mut lab, seed, options, None)
        };
        events += outcome.events;
        seconds += outcome.time.as_secs_f64();
        sessions += outcome.sessions;
        outcome.faults.iter().for_each(|name| *struck.entry(name).or_default() += 1);
        if let Some(broken) = outcome.broken {
            failed += 1;
            let mut replay = format!("./dev sim --seed {seed} --trace");
            if let Some(workers) = workers {
                replay += &format!(" --workers {workers}");
            }
            if let Some(redundancy) = redundancy {
                replay += &format!(" --redundancy {redundancy}");
            }
            if let Some(coded) = coded {
                replay += &format!(" --coded {coded}");
            }
            if calm {
                replay += " --calm";
            }
            let _ = writeln!(out, "seed {seed} FAILED: {broken}\n  replay: {replay}");
            if !arguments.keep_going {
                break;
            }
        }
    }
    let faults: Vec<String> = struck.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let _ = writeln!(
        out,
        "{count} seeds, {failed} failed; {events} events, {seconds:.0} simulated seconds, \
         {sessions} sessions; faults: {}",
        faults.join(", ")
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What decisions cost, for more and more workers.
fn show_costs(out: &mut impl Write) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "it measures; nothing is decided by it")]
    let began = Instant::now();
    for workers in [10, 100, 300, 1000] {
        let cost = measure(workers, 300, || began.elapsed());
        let _ = writeln!(
            out,
            "{workers:5} workers: {:8.1} us a step, {:6.2} us a step and worker",
            cost.per_step(),
            cost.per_worker()
        );
    }
    ExitCode::SUCCESS
}
