//! A training step allocates nothing once it has run, whole or a worker's part of it: an allocator
//! that counts says so.

use planaria_learn::engines::cpu::{CpuEngine, CpuTrainer};
use planaria_learn::{Engine, Examples, Hooks, Network, Ready, Settings, Targets, Trainer, Work};
use planaria_recipe::train::{Adam, Loss, Optimizer};
use planaria_recipe::{Preset, Shape, presets};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: forwarded.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::SeqCst);
        // SAFETY: forwarded.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests count one at a time.
static TURN: Mutex<()> = Mutex::new(());

const BATCH: usize = 12;

fn networks() -> [(Preset, Shape); 3] {
    let image = |n, channels| Shape::Image { height: n, width: n, channels };
    [(Preset::Mlp, image(28, 1)), (Preset::Cnn, image(28, 1)), (Preset::Resnet20, image(32, 3))]
}

fn settings(clip_norm: Option<f32>) -> Settings {
    Settings {
        seed: 1,
        batch: BATCH,
        shards: 5,
        threads: 2,
        loss: Loss::CrossEntropy,
        label_smoothing: 0.1,
        optimizer: Optimizer::Adam(Adam::default()),
        clip_norm,
        isa: None,
    }
}

fn batch(input: Shape) -> (Vec<f32>, Vec<u32>) {
    let inputs = (0..BATCH * input.len()).map(|i| (i % 17) as f32 * 0.1).collect();
    (inputs, (0..BATCH as u32).map(|i| i % 10).collect())
}

/// Allocations while `work` runs.
fn count(work: impl FnOnce()) -> usize {
    let before = COUNT.load(Ordering::SeqCst);
    work();
    COUNT.load(Ordering::SeqCst) - before
}

#[test]
fn a_step_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    for (preset, input) in networks() {
        for clip_norm in [None, Some(1.0)] {
            let network = Network::new(&presets::expand(preset, 10), input).expect("presets fit");
            let mut trainer = CpuTrainer::new(network, settings(clip_norm));
            let (inputs, classes) = batch(input);
            let batch = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
            let mut steps = |steps: std::ops::Range<u64>| {
                for step in steps {
                    trainer.step(step, 0.001, batch).expect("finite");
                }
            };
            steps(0..3);
            let found = count(|| steps(3..10));
            assert_eq!(found, 0, "{preset:?}, clipping at {clip_norm:?}: {found} allocations");
        }
    }
}

#[test]
fn a_part_of_a_step_allocates_nothing() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    for (preset, input) in networks() {
        let network = Network::new(&presets::expand(preset, 10), input).expect("presets fit");
        let (parameters, _) = network.initialise(1);
        let mut engine = CpuEngine::new(network, settings(None));
        let (inputs, classes) = batch(input);
        let handed_out = AtomicUsize::new(0);
        // Shards of 12 examples begin at 0, 2, 4, 7, 9.
        let mut steps = |steps: std::ops::Range<u64>| {
            for step in steps {
                let (run, from, to) = [(0..5, 0, 12), (1..4, 2, 9)][step as usize % 2].clone();
                let batch = Examples {
                    inputs: &inputs[from * input.len()..to * input.len()],
                    targets: Targets::Classes(&classes[from..to]),
                };
                let (shards, examples_in_step) = (run, BATCH);
                let parameters = parameters.as_slice();
                let work = Work { step, parameters, shards, examples_in_step, batch };
                let ready = |ready: Ready<'_>| {
                    handed_out.fetch_add(ready.values.len(), Ordering::Relaxed);
                };
                engine.compute(work, Hooks { ready: &ready, is_over: &|| false });
            }
        };
        steps(0..3);
        let found = count(|| steps(3..10));
        assert_eq!(found, 0, "{preset:?}: {found} allocations");
        // One segment of all shards, two of shards 1 to 3.
        assert_eq!(handed_out.into_inner(), (5 + 5 * 2) * parameters.len());
    }
}
