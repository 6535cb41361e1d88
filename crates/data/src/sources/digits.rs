//! The built-in `digits`: any number of 28×28 handwritten-looking digits, each drawn from the seed
//! and its id alone.
//!
//! An image is drawn when it is first read and kept from then on, so opening costs nothing and the
//! thread that reads ahead does the drawing. Each ten ids in a row hold every digit once, in an order
//! drawn from the seed.

mod draw;
mod strokes;

use crate::budget::{Memory, Reserved};
use crate::error::Error;
use crate::memory::prefetch;
use crate::scale::Scale;
use crate::source::{DataFile, Source, Target, Targets};
use draw::{PIXELS, SIDE};
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::shape::Shape;
use std::sync::OnceLock;

/// Raised when the same seed and id give another image; a resumed run must draw the same.
pub const VERSION: u32 = 1;
/// Examples drawn when `data.examples` does not say.
pub const EXAMPLES: u64 = 60_000;

/// Images kept once drawn (about 200 MB); the others are drawn again whenever they are read.
const KEPT_MAX: u64 = 1 << 18;

/// How many images ahead the processor is told what will be read.
const PREFETCH_AHEAD: usize = 2;

/// What the examples look like.
pub const SHAPE: Shape = Shape::Image { height: SIDE, width: SIDE, channels: 1 };

/// Which of the numbers under [`Purpose::Digits`] a stream gives.
const ORDER: u64 = 0;
const IMAGE: u64 = 1;

/// A run of drawn digits.
#[derive(Debug)]
pub struct Digits {
    seed: u64,
    first: u64,
    len: u64,
    kept: Vec<OnceLock<Box<Drawn>>>,
    _room: Option<Reserved>,
}

/// One image and what it shows.
#[derive(Debug)]
struct Drawn {
    digit: u8,
    pixels: [u8; PIXELS],
}

impl Digits {
    /// `len` digits under `seed`, from the `first` on: runs that do not overlap share no image.
    pub fn new(seed: u64, first: u64, len: u64) -> Self {
        Self::within(seed, first, len, &Memory::of_process())
    }

    /// The same, of which as many are kept as there is memory for.
    pub fn within(seed: u64, first: u64, len: u64, memory: &Memory) -> Self {
        let each = (size_of::<Drawn>() + size_of::<OnceLock<Box<Drawn>>>()) as u64;
        let count = len.min(KEPT_MAX).min(memory.left() / each);
        let room = memory.reserve(count * each);
        let count = if room.is_some() { count } else { 0 };
        let kept = (0..count).map(|_| OnceLock::new()).collect();
        Self { seed, first, len, kept, _room: room }
    }

    /// The digit that an example shows.
    pub fn class(&self, id: u64) -> u32 {
        // A class alone is not worth an image.
        match self.kept.get(id as usize).and_then(OnceLock::get) {
            Some(drawn) => u32::from(drawn.digit),
            None => u32::from(digit(self.seed, self.first + id)),
        }
    }

    /// The image of an example as bytes, row by row.
    pub fn pixels(&self, id: u64) -> [u8; PIXELS] {
        self.with(id, |drawn| drawn.pixels)
    }

    fn with<T>(&self, id: u64, use_it: impl FnOnce(&Drawn) -> T) -> T {
        match self.kept.get(id as usize) {
            Some(slot) => use_it(slot.get_or_init(|| Box::new(self.draw(id)))),
            None => use_it(&self.draw(id)),
        }
    }

    fn draw(&self, id: u64) -> Drawn {
        let number = self.first + id;
        let digit = digit(self.seed, number);
        let mut pixels = [0; PIXELS];
        let mut random = Stream::new(self.seed, Purpose::Digits, IMAGE, number);
        draw::draw(usize::from(digit), &mut random, &mut pixels);
        Drawn { digit, pixels }
    }
}

impl Source for Digits {
    fn len(&self) -> u64 {
        self.len
    }

    fn shape(&self) -> Shape {
        SHAPE
    }

    fn target(&self) -> Target {
        Target::Class { classes: 10 }
    }

    fn read(
        &self,
        ids: &[u64],
        scale: &Scale,
        _: &mut Vec<u8>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        for (i, (&id, out)) in ids.iter().zip(out.chunks_exact_mut(PIXELS)).enumerate() {
            let later = ids.get(i + PREFETCH_AHEAD).and_then(|id| self.kept.get(*id as usize));
            if let Some(drawn) = later.and_then(OnceLock::get) {
                prefetch(&drawn.pixels);
            }
            self.with(id, |drawn| scale.bytes(&drawn.pixels, out));
        }
        Ok(())
    }

    fn targets(&self, ids: &[u64], _: &mut Vec<u8>, out: &mut Targets) -> Result<(), Error> {
        if let Targets::Classes(classes) = out {
            classes.extend(ids.iter().map(|&id| self.class(id)));
        }
        Ok(())
    }

    fn files(&self) -> &[DataFile] {
        &[]
    }
}

/// The digit that number `number` shows: its place in a drawn order of its block of ten.
fn digit(seed: u64, number: u64) -> u8 {
    let mut random = Stream::new(seed, Purpose::Digits, ORDER, number / 10);
    let mut order = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order[(number % 10) as usize]
}
