//! Random churn inside iterations: what comes out is what one machine computes.

use super::*;
use planaria_numerics::coding::{
    blocks::{Blocks, Encoder, Rows as Data},
    exact::Residue,
    ring,
};
use planaria_numerics::random::{Purpose, Stream};

const WIDTH: usize = 3;
const COLUMNS: usize = 2;

/// Machines that hold coded rows, and do as they are told.
struct Lab {
    code: Code<Residue>,
    blocks: Blocks,
    stored: Vec<Vec<Residue>>,
    data: Vec<Residue>,
    weights: Vec<Residue>,
    sums: BTreeMap<(Slot, u64), Vec<Residue>>,
    decoded: usize,
}

impl Lab {
    fn new(threshold: usize, machines: usize, rows: usize, seed: u64) -> Self {
        let generator = Generator::cauchy(threshold, machines).unwrap();
        let mut draws = Stream::new(seed, Purpose::Code, 1, 1);
        let mut number = || Residue::from_i64(draws.below(2000) as i64 - 1000);
        let data: Vec<Residue> = (0..rows * WIDTH).map(|_| number()).collect();
        let weights: Vec<Residue> = (0..WIDTH * COLUMNS).map(|_| number()).collect();
        let blocks = Blocks::new(rows, threshold).unwrap();
        let stored = generator.slots().map(|slot| {
            let mut encoder =
                Encoder::new(&generator, slot, blocks, WIDTH, 0..blocks.height()).unwrap();
            encoder.push(0, &Data::Dense { width: WIDTH, values: &data }).unwrap();
            encoder.finish().unwrap()
        });
        let stored = stored.collect();
        let code = Code { generator, precision: Precision::Exact };
        Self { code, blocks, stored, data, weights, sums: BTreeMap::new(), decoded: 0 }
    }

    fn rows(&self, slot: Slot, places: &Range<usize>) -> &[Residue] {
        &self.stored[slot.index()][places.start * WIDTH..places.end * WIDTH]
    }

    /// Slopes are the products themselves: linear, and as good as any.
    fn answer(&mut self, slot: Slot, order: Order<Residue>, to: &mut Iteration<Residue>) {
        match order {
            Order::Multiply { group, places } => {
                let mut out = vec![Residue::default(); places.len() * COLUMNS];
                product::rows_times(WIDTH, self.rows(slot, &places), &self.weights, &mut out);
                to.product(group, slot, out);
            }
            Order::Decode { group, places, members, products } => {
                let length = places.len() * COLUMNS;
                let views: Vec<&[Residue]> = products.chunks_exact(length).collect();
                let (decoder, _) = planaria_numerics::coding::group::decoder_within(
                    &self.code.generator,
                    &members,
                    Precision::Exact,
                )
                .unwrap();
                let mut blocks = vec![Residue::default(); products.len()];
                decoder.decode(&views, &mut blocks);
                let mut entries = vec![Residue::default(); products.len()];
                decoder.transform(&blocks, &mut entries);
                let rows = (0..self.blocks.threshold())
                    .flat_map(|block| self.blocks.data_rows(block, &places))
                    .map(|row| row as u64);
                let counted = Counted { read: rows.collect(), ..Counted::default() };
                self.decoded += usize::from(to.decoded(group, &entries, counted));
            }
            Order::Add { ticket, places, entries } => {
                let mut sums = self
                    .sums
                    .remove(&(slot, ticket))
                    .unwrap_or_else(|| vec![Residue::default(); WIDTH * COLUMNS]);
                product::add_rows_scaled(WIDTH, self.rows(slot, &places), &entries, &mut sums);
                self.sums.insert((slot, ticket), sums);
            }
            Order::Deliver { ticket } => {
                let sums = self.sums.remove(&(slot, ticket)).unwrap();
                to.sum(slot, ticket, sums);
            }
        }
    }

    /// Xᵀ X w of the rows of some places, on one machine.
    fn expected(&self, places: &Range<usize>) -> (Vec<Residue>, Digest) {
        let rows = (0..self.blocks.threshold()).flat_map(|b| self.blocks.data_rows(b, places));
        let (mut sums, mut read) = (vec![Residue::default(); WIDTH * COLUMNS], Digest::default());
        for row in rows {
            let values = &self.data[row * WIDTH..][..WIDTH];
            let mut out = [Residue::default(); COLUMNS];
            product::rows_times(WIDTH, values, &self.weights, &mut out);
            product::add_rows_scaled(WIDTH, values, &out, &mut sums);
            read.add(row as u64);
        }
        (sums, read)
    }
}

/// One iteration in which machines leave and come at random between any two answers.
fn churn(seed: u64) {
    let mut draws = Stream::new(seed, Purpose::Code, 7, 7);
    let machines = 2 + draws.below(7) as usize;
    let threshold = 1 + draws.below(machines as u64 - 1) as usize;
    let rows = 1 + draws.below(60) as usize;
    let mut lab = Lab::new(threshold, machines, rows, seed);
    let mut alive: BTreeSet<Slot> = lab.code.generator.slots().collect();
    while alive.len() > threshold && draws.below(2) == 0 {
        alive.pop_first();
    }
    let height = lab.blocks.height();
    let from = draws.below(height as u64) as usize;
    let places = from..from + 1 + draws.below((height - from) as u64) as usize;
    let plan = ring::arrange(&lab.code.generator, Precision::Exact, places.clone(), &alive, None);
    let plan = plan.unwrap().ready().unwrap();
    let mut iteration = Iteration::<Residue>::new(plan, COLUMNS);
    let mut under_way: Vec<(Slot, Order<Residue>)> = Vec::new();
    let mut losses = 0;
    for _ in 0..10_000 {
        let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
        for (slot, _) in &orders {
            assert!(alive.contains(slot), "seed {seed}: somebody is asked who is not there");
        }
        under_way.extend(orders);
        let again = iteration.clone().orders(&lab.code, &alive).unwrap().0;
        assert_eq!(again, [], "seed {seed}: asked twice");
        if iteration.is_finished() {
            break;
        }
        assert!(
            !under_way.is_empty() || paused.is_some(),
            "seed {seed}: nothing under way, not paused, not finished"
        );
        if let Some(paused) = paused {
            assert!(alive.len() < threshold || paused.have < paused.need, "seed {seed}");
        }
        let loses = losses < 12 && draws.below(6) == 0;
        if loses && !alive.is_empty() {
            let at = draws.below(alive.len() as u64) as usize;
            let slot = *alive.iter().nth(at).unwrap();
            alive.remove(&slot);
            under_way.retain(|(of, _)| *of != slot);
            lab.sums.retain(|(of, _), _| *of != slot);
            iteration.lost(slot);
            losses += 1;
        } else if under_way.is_empty() || draws.below(5) == 0 {
            let gone: Vec<Slot> =
                lab.code.generator.slots().filter(|slot| !alive.contains(slot)).collect();
            if !gone.is_empty() {
                alive.insert(gone[draws.below(gone.len() as u64) as usize]);
            }
        } else {
            // Orders of one process are worked off in turn; processes are as fast as they are.
            let at = draws.below(under_way.len() as u64) as usize;
            let slot = under_way[at].0;
            let at = under_way.iter().position(|(of, _)| *of == slot).unwrap();
            let (slot, order) = under_way.remove(at);
            lab.answer(slot, order, &mut iteration);
        }
    }
    assert!(iteration.is_finished(), "seed {seed}: not finished");
    let groups = iteration.plan().groups().iter().filter(|g| !g.places.is_empty()).count();
    assert_eq!(lab.decoded, groups, "seed {seed}: every group is decoded once");
    if losses == 0 {
        let rows = iteration.plan().groups().iter().map(|g| g.places.len() * threshold);
        let all = 2 * rows.sum::<usize>() as u64;
        assert_eq!(iteration.rows(), Rows { asked: all, extra: 0 }, "seed {seed}");
    }
    let (gradient, counted) = iteration.finish(WIDTH * COLUMNS);
    assert_eq!((gradient, counted.read), lab.expected(&places), "seed {seed}");
}

#[test]
fn whoever_leaves_and_comes_the_gradient_is_that_of_one_machine() {
    (0..400).for_each(churn);
}

#[test]
fn with_too_few_it_is_paused_and_goes_on_with_any_that_come() {
    let lab = Lab::new(3, 5, 30, 1);
    let mut alive: BTreeSet<Slot> = [Slot(0), Slot(1), Slot(4)].into();
    let places = 0..lab.blocks.height();
    let plan = ring::arrange(&lab.code.generator, Precision::Exact, places, &alive, None);
    let mut iteration = Iteration::<Residue>::new(plan.unwrap().ready().unwrap(), COLUMNS);
    let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
    assert_eq!((orders.len(), paused), (9, None));
    alive.remove(&Slot(4));
    iteration.lost(Slot(4));
    let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
    assert_eq!((orders, paused), (vec![], Some(Paused { have: 2, need: 3 })));
    // Another comes: what the lost one owed is asked of it.
    alive.insert(Slot(2));
    let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
    assert_eq!((orders.len(), paused), (3, None));
    assert!(orders.iter().all(|(slot, _)| *slot == Slot(2)));
}
