//! Training on machines that come and go, between and inside iterations, against one machine.

use crate::{
    cluster::{Cluster, Losses, Tally, alone, alone_second},
    numbers::{Numbers, largest, normal, off, stream},
};
use planaria_numerics::{
    coding::{Paused, Slot, Standing, exact::Residue, plan::Plan, ring, slope::Task},
    random::Stream,
};
use std::collections::BTreeSet;

const WIDTH: usize = 12;
const ROWS: usize = 203;
const ITERATIONS: usize = 60;
/// Levels of a table's columns.
const LEVELS: [usize; 7] = [2, 7, 4, 11, 11, 10, 10];

const TASKS: [Task; 5] = [
    Task::LinearRegression,
    Task::Logistic,
    Task::SquaredHinge,
    Task::Hinge,
    Task::Softmax { classes: 3 },
];

struct Problem {
    task: Task,
    width: usize,
    data: Vec<f64>,
    targets: Vec<f64>,
    /// Rows that predictions are compared on.
    held_out: Vec<f64>,
}

impl Problem {
    /// Normal features.
    fn new(task: Task, seed: usize) -> Self {
        let mut draws = stream(seed, 3);
        let data = normal(&mut draws, ROWS * WIDTH);
        Self::of(task, WIDTH, data, Vec::new(), &mut draws)
    }

    /// A table as that of credit defaults becomes: columns of a few levels, each a one-hot group,
    /// and a column of ones. Levels are as uneven as they are there.
    fn table(task: Task, seed: usize) -> Self {
        let mut draws = stream(seed, 8);
        let width = LEVELS.iter().sum::<usize>() + 1;
        let mut rows = |count: usize| {
            let mut data = vec![0.0; count * width];
            for row in data.chunks_exact_mut(width) {
                let mut first = 0;
                for levels in LEVELS {
                    let level = draws.below(levels as u64).min(draws.below(levels as u64));
                    row[first + level as usize] = 1.0;
                    first += levels;
                }
                row[width - 1] = 1.0;
            }
            data
        };
        let (data, held_out) = (rows(ROWS * 2), rows(ROWS));
        Self::of(task, width, data, held_out, &mut draws)
    }

    /// Targets that follow from the features, with noise. Where nothing is held out, predictions
    /// are compared on the training rows.
    fn of(
        task: Task,
        width: usize,
        data: Vec<f64>,
        held_out: Vec<f64>,
        draws: &mut Stream,
    ) -> Self {
        let truth = normal(draws, width * task.columns());
        let products = alone(width, &data, &truth);
        let target = |z: &[f64]| match task {
            Task::LinearRegression => z[0],
            Task::Softmax { .. } => arg_max(z) as f64,
            _ => z[0].signum(),
        };
        let targets = products
            .chunks_exact(task.columns())
            .map(|z| {
                let noisy: Vec<f64> = z.iter().map(|z| z + f64::from(draws.normal())).collect();
                target(&noisy)
            })
            .collect();
        let held_out = if held_out.is_empty() { data.clone() } else { held_out };
        Self { task, width, data, targets, held_out }
    }

    fn rows(&self) -> usize {
        self.data.len() / self.width
    }

    fn in_order(&self) -> Vec<usize> {
        (0..self.rows()).collect()
    }

    fn slopes(&self, mut products: Vec<f64>) -> Vec<f64> {
        self.task.slopes(&mut products, &self.targets);
        products
    }

    /// One step of gradient descent, with L2.
    fn step<E: Numbers>(&self, weights: &mut [f64], gradients: &[f64]) {
        for (w, g) in weights.iter_mut().zip(gradients) {
            *w = E::kept(*w - 0.1 * (g / self.rows() as f64 + 0.01 * *w));
        }
    }

    fn start(&self) -> Vec<f64> {
        vec![0.0; self.width * self.task.columns()]
    }

    /// On one machine, with rows added up in the order `order` gives.
    fn alone<E: Numbers>(&self, order: &[usize]) -> Vec<f64> {
        let columns = self.task.columns();
        let turned: Vec<f64> =
            order.iter().flat_map(|r| self.data[r * self.width..][..self.width].to_vec()).collect();
        let turned = E::data(self.width, &turned);
        let data = E::data(self.width, &self.data);
        let mut weights = self.start();
        for _ in 0..ITERATIONS {
            let products = alone(self.width, &data, &E::weights(self.width, &weights));
            let slopes = E::slopes(columns, &self.slopes(E::products(&products)));
            let slopes: Vec<E> =
                order.iter().flat_map(|r| slopes[r * columns..][..columns].to_vec()).collect();
            let sums = alone_second(self.width, &turned, &slopes);
            self.step::<E>(&mut weights, &E::gradients(&sums));
        }
        weights
    }

    /// On a code's machines under churn.
    fn coded<E: Numbers>(
        &self,
        threshold: usize,
        machines: usize,
        seed: usize,
    ) -> (Vec<f64>, Tally) {
        let columns = self.task.columns();
        let cluster =
            Cluster::<E>::new(threshold, machines, self.width, &E::data(self.width, &self.data));
        let alive = (0..machines as u16).map(Slot).collect();
        let mut losses = Losses { alive, draws: stream(seed, 4), one_in: 60, left: 400 };
        let mut tally = Tally::default();
        let mut weights = self.start();
        let mut plan: Option<Plan> = None;
        for _ in 0..ITERATIONS {
            let next = self.arrange(&cluster, &mut losses, plan.as_ref(), &mut tally);
            let fixed = E::weights(self.width, &weights);
            let gathered = cluster.first(&next, &fixed, &mut losses, &mut tally);
            let slopes = self.slopes(E::products(&gathered.products));
            let slopes = E::slopes(columns, &slopes);
            let sums = cluster.second(&gathered, &slopes, &mut losses, &mut tally);
            self.step::<E>(&mut weights, &E::gradients(&sums));
            plan = Some(next);
        }
        (weights, tally)
    }

    /// Machines come and go, and then there is a plan; too few are a pause until more come.
    fn arrange<E: Numbers>(
        &self,
        cluster: &Cluster<E>,
        losses: &mut Losses,
        before: Option<&Plan>,
        tally: &mut Tally,
    ) -> Plan {
        if !losses.alive.is_empty() && losses.draws.below(3) == 0 {
            losses.lose();
        }
        for _ in 0..losses.draws.below(3) {
            losses.join(cluster.generator.machines());
        }
        loop {
            let places = 0..cluster.blocks.height();
            let alive = &losses.alive;
            let plan = ring::arrange(&cluster.generator, E::PRECISION, places, alive, before);
            match plan.expect("good") {
                Standing::Ready(plan) => return plan,
                Standing::Paused(paused) => {
                    let need = cluster.generator.threshold();
                    assert_eq!(paused, Paused { have: alive.len(), need });
                    tally.pauses += 1;
                    losses.join(cluster.generator.machines());
                }
            }
        }
    }

    /// How far weights in f32 move when the rows are added up in another order.
    fn reordered_floor(&self, plain: &[f64]) -> f64 {
        let shuffled = |shuffle| {
            let mut draws = stream(shuffle, 6);
            let mut order = self.in_order();
            for i in (1..order.len()).rev() {
                order.swap(i, draws.below(i as u64 + 1) as usize);
            }
            off(&self.alone::<f32>(&order), plain)
        };
        (0..8).map(shuffled).fold(0.0, f64::max)
    }

    fn predictions(&self, weights: &[f64]) -> Vec<usize> {
        let products = alone(self.width, &self.held_out, weights);
        let columns = self.task.columns();
        products
            .chunks_exact(columns)
            .map(|z| if columns == 1 { usize::from(z[0] > 0.0) } else { arg_max(z) })
            .collect()
    }
}

fn arg_max(z: &[f64]) -> usize {
    (0..z.len()).max_by(|a, b| z[*a].total_cmp(&z[*b])).expect("some columns")
}

#[test]
fn weights_in_f64_are_those_of_one_machine() {
    let mut seen = Tally::default();
    for (seed, task) in TASKS.into_iter().enumerate() {
        let problem = Problem::new(task, seed);
        let plain = problem.alone::<f64>(&problem.in_order());
        assert!(largest(&plain) > 0.1, "it learned something");
        for (threshold, machines) in [(4, 8), (1, 3), (3, 6), (6, 9), (8, 16)] {
            let (weights, tally) = problem.coded::<f64>(threshold, machines, seed);
            let off = off(&weights, &plain);
            assert!(off <= 1e-12, "{task:?}, {threshold} of {machines}: {off:e}");
            assert_eq!(problem.predictions(&weights), problem.predictions(&plain));
            seen.losses[0] += tally.losses[0];
            seen.losses[1] += tally.losses[1];
            seen.pauses += tally.pauses;
            assert_eq!(tally.discarded, 0);
        }
    }
    assert!(seen.losses[0] > 100 && seen.losses[1] > 100 && seen.pauses > 10, "{seen:?}");
}

#[test]
fn weights_in_f32_are_within_what_another_order_changes() {
    for (seed, task) in TASKS.into_iter().enumerate() {
        let problem = Problem::new(task, seed);
        let plain = problem.alone::<f32>(&problem.in_order());
        let floor = problem.reordered_floor(&plain);
        let (weights, _) = problem.coded::<f32>(4, 8, seed);
        let off = off(&weights, &plain);
        if task != Task::Hinge {
            assert!(off <= 5.0 * floor, "{task:?}: {off:e}, another order {floor:e}");
        }
        assert_eq!(problem.predictions(&weights), problem.predictions(&plain), "{task:?}");
    }
}

#[test]
fn exact_weights_are_the_same_bytes_for_any_history() {
    for (seed, task) in TASKS.into_iter().enumerate() {
        let problem = Problem::new(task, seed);
        let plain = problem.alone::<Residue>(&problem.in_order());
        let bits = |weights: &[f64]| weights.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
        let mut histories = BTreeSet::new();
        for (threshold, machines) in [(4, 8), (1, 3), (3, 6), (5, 5), (7, 20)] {
            for history in 0..3 {
                let (weights, tally) =
                    problem.coded::<Residue>(threshold, machines, 100 * seed + history);
                assert_eq!(bits(&weights), bits(&plain), "{task:?}, {threshold} of {machines}");
                histories.insert((tally.losses, tally.pauses, tally.extra));
            }
        }
        assert!(histories.len() > 10, "histories differ");
        // And it is training as floats do it, to within fixed point.
        let float = problem.alone::<f64>(&problem.in_order());
        let off = off(&plain, &float);
        assert!(off < 1e-9 || task == Task::Hinge, "{task:?}: {off:e}");
    }
}

#[test]
fn a_table_like_that_of_credit_defaults_is_learned_as_on_one_machine() {
    let tasks = [Task::SquaredHinge, Task::Logistic, Task::LinearRegression];
    let mut seen = Tally::default();
    for (seed, task) in tasks.into_iter().enumerate() {
        let problem = Problem::table(task, seed);
        let plain = problem.alone::<f64>(&problem.in_order());
        assert!(largest(&plain) > 0.1, "it learned something");
        let (weights, tally) = problem.coded::<f64>(4, 8, seed);
        let distance = off(&weights, &plain);
        assert!(distance <= 1e-12, "{task:?} in f64: {distance:e}");
        assert_eq!(problem.predictions(&weights), problem.predictions(&plain), "{task:?}");

        let single = problem.alone::<f32>(&problem.in_order());
        let floor = problem.reordered_floor(&single);
        let (weights, other) = problem.coded::<f32>(4, 8, seed + 50);
        let distance = off(&weights, &single);
        assert!(distance <= 5.0 * floor, "{task:?} in f32: {distance:e}, floor {floor:e}");
        assert_eq!(problem.predictions(&weights), problem.predictions(&single), "{task:?}");
        for (seen, losses) in seen.losses.iter_mut().zip([tally.losses, other.losses]) {
            *seen += losses[0] + losses[1];
        }
    }
    assert!(seen.losses.iter().all(|losses| *losses > 50), "{seen:?}");
}
