//! The order in which a worker tells the servers what it has computed.

use planaria_data::{Batch, Targets};
use planaria_learn::{Network, Settings, engines};
use planaria_protocol::message::{Push, ServerRange};
use planaria_recipe::Recipe;
use planaria_recipe::shape::Shape;
use planaria_worker::gradient::compute::{FirstBlocks, Outlet, compute};
use planaria_worker::gradient::read_ahead::Portion;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const SHARDS: usize = 4;
const EXAMPLES: usize = 8;
const BLOCKS: u32 = 3;

/// Collects messages in order, with their server and the length of what follows them.
struct Collector {
    server_ranges: Vec<ServerRange>,
    told: Mutex<Vec<(u32, Push, usize)>>,
}

impl Outlet for Collector {
    fn server_ranges(&self) -> &[ServerRange] {
        &self.server_ranges
    }

    fn tell(&self, at: usize, message: &Push, bulk: &[u8]) {
        let told = (self.server_ranges[at].server, message.clone(), bulk.len());
        self.told.lock().unwrap().push(told);
    }
}

fn recipe() -> Recipe {
    let text = r#"{"name": "pushes", "data": {"train": "digits"},
        "model": {"layers": [{"Dense": {"units": 1300}}, {"BatchNormalization": {}},
                             {"Dense": {"units": 3}}]},
        "train": {"shards": 4, "batch": 8, "epochs": 1}}"#;
    serde_json::from_str(text).unwrap()
}

/// A server that has the whole first block has every shard's report. Otherwise the others could
/// apply the step, and a worker that has all new parameters would push the next step, which waits
/// for this one's commit, before reports of this one that it would be asked for on the same link.
#[test]
fn the_first_block_comes_after_the_reports_on_the_same_link() {
    let network = || Network::of(&recipe(), Shape::Vector(3)).unwrap();
    let parameters = network().initialise(1).0;
    assert_eq!(parameters.len().div_ceil(4096), BLOCKS as usize);
    // Three shards of four are two subtrees.
    for (shards, segments) in [(0..4, vec![(0, 4)]), (0..3, vec![(0, 2), (2, 1)])] {
        for (first, threads) in [(3, 1), (1, 2), (2, 1)] {
            // Of one server that has all, or of two.
            let blocks = [0..first, first..BLOCKS].into_iter().filter(|b| !b.is_empty());
            let server_range =
                |(server, blocks)| ServerRange { server, address: String::new(), blocks };
            let server_ranges: Vec<ServerRange> = (0..).zip(blocks).map(server_range).collect();
            let collector = Collector { server_ranges, told: Mutex::default() };
            let mut engine = engines::engine(network(), Settings::of(&recipe(), threads)).unwrap();
            let examples = 2 * shards.len();
            let batch = Batch::default();
            let mut portion =
                Portion { step: 7, shards: shards.clone(), examples_in_step: EXAMPLES, batch };
            portion.batch.ids = (0..examples as u64).collect();
            portion.batch.inputs = (0..3 * examples).map(|i| i as f32 * 0.1).collect();
            portion.batch.targets = Targets::Classes(vec![1; examples]);
            let mut first = FirstBlocks::default();
            // The second time with what the first has left.
            for _ in 0..2 {
                // Given up half-way, nothing is told.
                let asked = AtomicUsize::new(0);
                let is_over = || asked.fetch_add(1, Ordering::Relaxed) >= 2;
                let mut compute = |is_over: &(dyn Fn() -> bool + Sync)| {
                    let engine = engine.as_mut();
                    compute(engine, &collector, &parameters, &portion, SHARDS, &mut first, is_over)
                };
                assert_eq!(compute(&is_over), 2);
                assert!(collector.told.lock().unwrap().is_empty());
                compute(&|| false);
                check(&collector, shards.len(), &segments, parameters.len());
            }
        }
    }
}

fn check(collector: &Collector, shards: usize, segments: &[(u32, u32)], parameters: usize) {
    let told = std::mem::take(&mut *collector.told.lock().unwrap());
    let is_report = |push: &Push| matches!(push, Push::Shard { step: 7, .. });
    let is_first = |push: &Push| matches!(push, Push::Gradient { first_block: 0, .. });
    let last_report = told.iter().rposition(|(_, push, _)| is_report(push)).unwrap();
    let reports = told.iter().filter(|(server, push, _)| *server == 0 && is_report(push)).count();
    assert_eq!(reports, shards, "server 0 counts");
    let mut firsts = Vec::new();
    for (at, (server, push, bytes)) in told.iter().enumerate().filter(|(_, t)| is_first(&t.1)) {
        assert!(at > last_report, "{push:?} comes before a report: {told:?}");
        assert_eq!(
            (*server, *bytes),
            (0, 4 * 4096),
            "the first block alone, to the server that counts"
        );
        let Push::Gradient { first_shard, shards, .. } = push else { unreachable!() };
        firsts.push((*first_shard, *shards));
    }
    firsts.sort_unstable();
    assert_eq!(firsts, segments, "once for every segment");
    let gradients = told.iter().filter(|(_, push, _)| matches!(push, Push::Gradient { .. }));
    let bytes: usize = gradients.map(|(_, _, bytes)| bytes).sum();
    assert_eq!(bytes, segments.len() * parameters * 4, "nothing is missing, nothing comes twice");
}
