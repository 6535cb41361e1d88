//! Random churn inside iterations: what comes out is what one machine computes.

use super::*;
use crate::methods::coded::arithmetic::Code;
use planaria_numerics::coding::{
    Precision,
    blocks::{Blocks, Encoder, Rows as Data},
    exact::Residue,
    generator::Generator,
    product, ring,
};
use planaria_numerics::random::{Purpose, Stream};
use planaria_protocol::methods::coded::{Coefficient, Travel};

mod bounds;

const WIDTH: usize = 3;
const COLUMNS: usize = 2;

/// Machines that hold coded rows, and do as they are told.
struct Lab {
    code: Code<Residue>,
    blocks: Blocks,
    stored: Vec<Vec<Residue>>,
    data: Vec<Residue>,
    weights: Vec<Residue>,
    machines: BTreeMap<Slot, Machine>,
    /// What is on its way between machines: to whom, and to which process there.
    sent: Vec<(Slot, u64, Message)>,
    processes: u64,
    decoded: BTreeSet<usize>,
    /// Rows that were multiplied in product 1.
    multiplied: u64,
}

type Known = std::rc::Rc<BTreeMap<Slot, u64>>;

/// Whose entries there are, places, and the entries.
type Entries = (Vec<Slot>, Range<usize>, Vec<Residue>);

/// One machine's process.
#[derive(Default)]
struct Machine {
    process: u64,
    /// With the processes that there were when it was given: what is sent to others goes to those.
    orders: std::collections::VecDeque<(Order, Known)>,
    products: BTreeMap<usize, Vec<Residue>>,
    arrived: BTreeMap<(usize, Slot), Vec<Residue>>,
    decodes: BTreeMap<usize, (Order, Known)>,
    entries: BTreeMap<usize, Entries>,
    shares: BTreeMap<usize, Vec<(Share, Known)>>,
    paid: BTreeMap<u64, Vec<Residue>>,
    delivers: Vec<(u64, Vec<u64>)>,
}

#[derive(Clone)]
enum Message {
    Product(usize, Slot, Vec<Residue>),
    Entries(u64, Range<usize>, Vec<Residue>),
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
        Self {
            code,
            blocks,
            stored,
            data,
            weights,
            machines: BTreeMap::new(),
            sent: Vec::new(),
            processes: 0,
            decoded: BTreeSet::new(),
            multiplied: 0,
        }
    }

    fn rows(&self, slot: Slot, places: &Range<usize>) -> &[Residue] {
        &self.stored[slot.index()][places.start * WIDTH..places.end * WIDTH]
    }

    /// A machine comes, with nothing but its rows.
    fn start(&mut self, slot: Slot) {
        self.processes += 1;
        let machine = Machine { process: self.processes, ..Machine::default() };
        self.machines.insert(slot, machine);
    }

    /// Orders go to those they are for.
    fn order(&mut self, orders: Vec<(Slot, Order)>) {
        let known = self.machines.iter().map(|(slot, machine)| (*slot, machine.process));
        let known: Known = std::rc::Rc::new(known.collect());
        for (slot, order) in orders {
            let machine = self.machines.get_mut(&slot).expect("it is there");
            machine.orders.push_back((order, known.clone()));
        }
    }

    fn send(&mut self, to: Slot, known: &Known, message: Message) {
        self.sent.push((to, known[&to], message));
    }

    fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.machines.values().all(|m| m.orders.is_empty())
    }

    /// A machine works off an order, or a message arrives: whichever is drawn.
    fn go_on(&mut self, draw: u64, to: &mut Iteration) {
        let busy: Vec<Slot> =
            self.machines.iter().filter(|(_, m)| !m.orders.is_empty()).map(|(s, _)| *s).collect();
        let at = draw as usize % (busy.len() + self.sent.len());
        if let Some(slot) = busy.get(at) {
            let machine = self.machines.get_mut(slot).unwrap();
            let (order, known) = machine.orders.pop_front().unwrap();
            self.obey(*slot, order, known, to);
            return self.progress(*slot, to);
        }
        let (slot, process, message) = self.sent.swap_remove(at - busy.len());
        if self.machines.get(&slot).is_some_and(|m| m.process == process) {
            self.take(slot, message, to);
            self.progress(slot, to);
        }
    }

    fn obey(&mut self, slot: Slot, order: Order, known: Known, to: &mut Iteration) {
        match order {
            Order::Multiply { group, places, to: decoder } => {
                if !self.machines[&slot].products.contains_key(&group) {
                    let mut out = vec![Residue::default(); places.len() * COLUMNS];
                    product::rows_times(WIDTH, self.rows(slot, &places), &self.weights, &mut out);
                    self.multiplied += places.len() as u64;
                    self.machines.get_mut(&slot).unwrap().products.insert(group, out);
                }
                to.multiplied(group, slot);
                let product = self.machines[&slot].products[&group].clone();
                self.send(decoder, &known, Message::Product(group, slot, product));
            }
            Order::Decode { group, .. } => {
                let machine = self.machines.get_mut(&slot).unwrap();
                if !machine.entries.contains_key(&group) {
                    machine.decodes.insert(group, (order, known));
                }
            }
            Order::Share { group, shares } => {
                let machine = self.machines.get_mut(&slot).unwrap();
                let shares = shares.into_iter().map(|share| (share, known.clone()));
                machine.shares.entry(group).or_default().extend(shares);
            }
            Order::Deliver { ticket, debts } => {
                self.machines.get_mut(&slot).unwrap().delivers.push((ticket, debts));
            }
        }
    }

    fn take(&mut self, slot: Slot, message: Message, to: &mut Iteration) {
        match message {
            Message::Product(group, of, values) => {
                let machine = self.machines.get_mut(&slot).unwrap();
                machine.arrived.insert((group, of), values);
                to.arrived(group, of, slot);
            }
            Message::Entries(debt, places, entries) => {
                let mut sums = vec![Residue::default(); WIDTH * COLUMNS];
                product::add_rows_scaled(WIDTH, self.rows(slot, &places), &entries, &mut sums);
                let before = self.machines.get_mut(&slot).unwrap().paid.insert(debt, sums.clone());
                assert!(before.is_none_or(|before| before == sums), "a debt changes");
            }
        }
    }

    /// What can be done now that could not before.
    fn progress(&mut self, slot: Slot, to: &mut Iteration) {
        let machine = self.machines.get_mut(&slot).unwrap();
        let ready: Vec<usize> = machine
            .decodes
            .iter()
            .filter(|(group, (order, _))| {
                let Order::Decode { inputs, .. } = order else { return false };
                inputs.iter().all(|input| machine.arrived.contains_key(&(**group, *input)))
            })
            .map(|(group, _)| *group)
            .collect();
        for group in ready {
            let machine = self.machines.get_mut(&slot).unwrap();
            let Some((Order::Decode { places, attempt, inputs, outputs, shares, .. }, known)) =
                machine.decodes.remove(&group)
            else {
                continue;
            };
            let length = places.len() * COLUMNS;
            let views: Vec<&[Residue]> =
                inputs.iter().map(|input| machine.arrived[&(group, *input)].as_slice()).collect();
            let decoder = |members: &[Slot]| {
                let generator = &self.code.generator;
                planaria_numerics::coding::group::decoder_within(
                    generator,
                    members,
                    Precision::Exact,
                )
                .unwrap()
                .0
            };
            // Slopes are the products themselves: linear, and as good as any.
            let mut blocks = vec![Residue::default(); length * inputs.len()];
            decoder(&inputs).decode(&views, &mut blocks);
            let mut entries = vec![Residue::default(); blocks.len()];
            decoder(&outputs).transform(&blocks, &mut entries);
            machine.entries.insert(group, (outputs, places.clone(), entries));
            let shares = shares.into_iter().map(|share| (share, known.clone()));
            machine.shares.entry(group).or_default().extend(shares);
            let rows = (0..self.blocks.threshold())
                .flat_map(|block| self.blocks.data_rows(block, &places))
                .map(|row| row as u64);
            let counted = Counted { read: rows.collect(), ..Counted::default() };
            if to.decoded(group, attempt, slot, counted) {
                self.decoded.insert(group);
            }
        }
        let machine = self.machines.get_mut(&slot).unwrap();
        let mut messages = Vec::new();
        for (group, (outputs, places, entries)) in &machine.entries {
            for (share, known) in machine.shares.remove(group).unwrap_or_default() {
                let at = outputs.iter().position(|output| *output == share.of).unwrap();
                let length = places.len() * COLUMNS;
                let mut entries = entries[at * length..][..length].to_vec();
                let coefficient = Residue::from_wire(share.coefficient).unwrap();
                product::scale_entries(coefficient, &mut entries);
                messages.push((
                    share.to,
                    known,
                    Message::Entries(share.debt, places.clone(), entries),
                ));
            }
        }
        let paid = std::mem::take(&mut machine.paid);
        let (due, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut machine.delivers)
            .into_iter()
            .partition(|(_, debts)| debts.iter().all(|debt| paid.contains_key(debt)));
        machine.delivers = waiting;
        for (ticket, debts) in due {
            let parts: Vec<&[Residue]> = debts.iter().map(|debt| paid[debt].as_slice()).collect();
            let mut sums = vec![Residue::default(); WIDTH * COLUMNS];
            product::total(&parts, &mut sums);
            to.sum(slot, ticket, Residue::bytes(&sums));
        }
        machine.paid = paid;
        for (to, known, message) in messages {
            self.send(to, &known, message);
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

fn total(sums: &[Vec<u8>]) -> Vec<Residue> {
    let sums: Vec<Vec<Residue>> = sums.iter().map(|sum| Residue::take(sum).unwrap()).collect();
    let parts: Vec<&[Residue]> = sums.iter().map(Vec::as_slice).collect();
    let mut total = vec![Residue::default(); WIDTH * COLUMNS];
    product::total(&parts, &mut total);
    total
}

/// One iteration in which machines leave and come at random between any two things that happen.
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
    alive.iter().for_each(|slot| lab.start(*slot));
    let height = lab.blocks.height();
    let from = draws.below(height as u64) as usize;
    let places = from..from + 1 + draws.below((height - from) as u64) as usize;
    let plan = ring::arrange(&lab.code.generator, Precision::Exact, places.clone(), &alive, None);
    let plan = plan.unwrap().ready().unwrap();
    let mut iteration = Iteration::new(plan, &lab.code);
    let most = draws.below(13);
    let mut losses = 0;
    for _ in 0..20_000 {
        let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
        for (slot, _) in &orders {
            assert!(alive.contains(slot), "seed {seed}: a machine is asked that is not there");
        }
        lab.order(orders);
        let again = iteration.clone().orders(&lab.code, &alive).unwrap().0;
        assert_eq!(again, [], "seed {seed}: asked twice");
        if iteration.is_finished() {
            break;
        }
        assert!(
            !lab.is_idle() || paused.is_some(),
            "seed {seed}: nothing under way, not paused, not finished"
        );
        if let Some(paused) = paused {
            assert!(alive.len() < threshold || paused.have < paused.need, "seed {seed}");
        }
        if losses < most && draws.below(6) == 0 && !alive.is_empty() {
            let at = draws.below(alive.len() as u64) as usize;
            let slot = *alive.iter().nth(at).unwrap();
            alive.remove(&slot);
            lab.machines.remove(&slot);
            iteration.lost(slot);
            losses += 1;
        } else if lab.is_idle() || draws.below(5) == 0 {
            let gone: Vec<Slot> =
                lab.code.generator.slots().filter(|slot| !alive.contains(slot)).collect();
            if !gone.is_empty() {
                let slot = gone[draws.below(gone.len() as u64) as usize];
                alive.insert(slot);
                lab.start(slot);
            }
        } else {
            lab.go_on(draws.below(1 << 20), &mut iteration);
        }
    }
    assert!(iteration.is_finished(), "seed {seed}: not finished");
    let groups = iteration.plan().groups().iter().filter(|g| !g.places.is_empty()).count();
    assert_eq!(lab.decoded.len(), groups, "seed {seed}: every group is decoded");
    if losses == 0 {
        let rows = iteration.plan().groups().iter().map(|g| g.places.len() * threshold);
        let all = 2 * rows.sum::<usize>() as u64;
        assert_eq!(iteration.rows(), Rows { asked: all, extra: 0 }, "seed {seed}");
    }
    let (gradient, counted) = iteration.finish();
    assert_eq!((total(&gradient), counted.read), lab.expected(&places), "seed {seed}");
}

#[test]
fn the_gradient_is_that_of_one_machine_while_machines_come_and_go() {
    (0..2000).for_each(churn);
}

#[test]
fn no_single_loss_has_a_product_computed_twice_that_was_sent() {
    for step in 0..120 {
        for victim in 0..6 {
            let mut lab = Lab::new(3, 6, 60, 4);
            let mut alive: BTreeSet<Slot> = lab.code.generator.slots().collect();
            alive.iter().for_each(|slot| lab.start(*slot));
            let places = 0..lab.blocks.height();
            let plan = ring::arrange(&lab.code.generator, Precision::Exact, places, &alive, None);
            let mut iteration = Iteration::new(plan.unwrap().ready().unwrap(), &lab.code);
            let (mut draws, mut kept) = (Stream::new(step, Purpose::Code, 9, victim), 0);
            for turn in 0..20_000 {
                lab.order(iteration.orders(&lab.code, &alive).unwrap().0);
                if iteration.is_finished() {
                    break;
                }
                if turn == step {
                    let slot = Slot(victim as u16);
                    // What it had multiplied and sent, and what it had not.
                    let own = &lab.machines[&slot].products;
                    kept = own.values().map(|values| (values.len() / COLUMNS) as u64).sum();
                    lab.sent.retain(|(to, ..)| *to != slot);
                    alive.remove(&slot);
                    lab.machines.remove(&slot);
                    iteration.lost(slot);
                    continue;
                }
                lab.go_on(draws.below(1 << 20), &mut iteration);
            }
            assert!(iteration.is_finished());
            // The victim was to multiply 10 of 60 rows, and had done `kept`. What it sent comes.
            assert!(lab.multiplied <= 60 + 10, "{} of {kept}", lab.multiplied);
            let (gradient, _) = iteration.finish();
            assert_eq!(total(&gradient), lab.expected(&(0..lab.blocks.height())).0);
        }
    }
}

#[test]
fn with_too_few_it_is_paused_and_goes_on_with_any_that_come() {
    let lab = Lab::new(3, 5, 30, 1);
    let mut alive: BTreeSet<Slot> = [Slot(0), Slot(1), Slot(4)].into();
    let places = 0..lab.blocks.height();
    let plan = ring::arrange(&lab.code.generator, Precision::Exact, places, &alive, None);
    let mut iteration = Iteration::new(plan.unwrap().ready().unwrap(), &lab.code);
    let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
    let multiplies = |orders: &[(Slot, Order)], by: Option<Slot>| {
        let is_one = |(slot, order): &&(Slot, Order)| {
            by.is_none_or(|by| by == *slot) && matches!(order, Order::Multiply { .. })
        };
        orders.iter().filter(is_one).count()
    };
    assert_eq!((multiplies(&orders, None), paused), (9, None));
    alive.remove(&Slot(4));
    iteration.lost(Slot(4));
    let (_, paused) = iteration.orders(&lab.code, &alive).unwrap();
    assert_eq!(paused, Some(Paused { have: 2, need: 3 }));
    // Another comes: what the lost one owed is asked of it.
    alive.insert(Slot(2));
    let (orders, paused) = iteration.orders(&lab.code, &alive).unwrap();
    assert_eq!((multiplies(&orders, Some(Slot(2))), paused), (3, None));
}
