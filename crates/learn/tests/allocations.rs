//! A training step allocates nothing once it has run: an allocator that counts says so.

use planaria_learn::{Examples, Network, Settings, Targets, Trainer};
use planaria_recipe::train::{Adam, Loss, Optimizer};
use planaria_recipe::{Preset, Shape, presets};
use std::alloc::{GlobalAlloc, Layout, System};
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

#[test]
fn a_step_allocates_nothing() {
    let image = |n, channels| Shape::Image { height: n, width: n, channels };
    for (preset, input) in
        [(Preset::Mlp, image(28, 1)), (Preset::Cnn, image(28, 1)), (Preset::Resnet20, image(32, 3))]
    {
        for clip_norm in [None, Some(1.0)] {
            let network = Network::new(&presets::expand(preset, 10), input).expect("presets fit");
            let settings = Settings {
                seed: 1,
                batch: 12,
                shards: 5,
                threads: 2,
                loss: Loss::CrossEntropy,
                label_smoothing: 0.1,
                optimizer: Optimizer::Adam(Adam::default()),
                clip_norm,
                isa: None,
            };
            let mut trainer = Trainer::new(network, settings);
            let inputs: Vec<f32> = (0..12 * input.len()).map(|i| (i % 17) as f32 * 0.1).collect();
            let classes: Vec<u32> = (0..12).map(|i| i % 10).collect();
            let batch = Examples { inputs: &inputs, targets: Targets::Classes(&classes) };
            for step in 0..3 {
                trainer.step(step, 0.001, batch).expect("finite");
            }
            let before = COUNT.load(Ordering::SeqCst);
            for step in 3..10 {
                trainer.step(step, 0.001, batch).expect("finite");
            }
            let found = COUNT.load(Ordering::SeqCst) - before;
            assert_eq!(found, 0, "{preset:?}, clipping at {clip_norm:?}: {found} allocations");
        }
    }
}
