//! Random changes to training examples, drawn by (seed, epoch, example id) alone.
//!
//! They work on scaled values: the border that a crop brings in and the square that Cutout takes
//! out become 0, which is the mean when `data.normalize` subtracts it.

use crate::error::Error;
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::sections::Augment;
use planaria_recipe::shape::Shape;

/// A checked `data.augment` for images of a given shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Augmenter {
    height: usize,
    width: usize,
    channels: usize,
    settings: Augment,
}

/// What happens to one example in one epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    /// First row and column of the crop in the padded image.
    crop: (usize, usize),
    flip: bool,
    /// Centre of the square that is taken out.
    hole: Option<(usize, usize)>,
}

impl Augmenter {
    /// Checks the setting; none when it changes nothing.
    pub fn new(settings: &Augment, shape: Shape) -> Result<Option<Self>, Error> {
        if *settings == Augment::default() {
            return Ok(None);
        }
        match shape {
            Shape::Image { height, width, channels } => {
                Ok(Some(Self { height, width, channels, settings: settings.clone() }))
            }
            Shape::Vector(n) => Err(Error::setting(format!(
                "`data.augment` changes images, but the examples are vectors of {n}"
            ))),
        }
    }

    /// Writes the changed `from` to `to`.
    pub fn apply(&self, seed: u64, epoch: u64, id: u64, from: &[f32], to: &mut [f32]) {
        let change = self.draw(seed, epoch, id);
        let padding = self.settings.crop_padding;
        let line = self.width * self.channels;
        for (row, to) in to.chunks_exact_mut(line).enumerate() {
            match (row + change.crop.0).checked_sub(padding).filter(|&r| r < self.height) {
                Some(r) => self.shift(&from[r * line..(r + 1) * line], change, to),
                None => to.fill(0.0),
            }
        }
        if let Some(centre) = change.hole {
            self.punch(centre, to);
        }
    }

    /// All numbers are always drawn, so that one setting does not change what another draws.
    fn draw(&self, seed: u64, epoch: u64, id: u64) -> Change {
        let mut random = Stream::new(seed, Purpose::Augment, epoch, id);
        let mut below = |n: usize| random.below(n as u64) as usize;
        let places = 2 * self.settings.crop_padding + 1;
        let crop = (below(places), below(places));
        let flip = below(2) == 1 && self.settings.horizontal_flip;
        let centre = (below(self.height), below(self.width));
        Change { crop, flip, hole: (self.settings.cutout > 0).then_some(centre) }
    }

    /// One row: moved sideways with zeros coming in, then mirrored.
    fn shift(&self, from: &[f32], change: Change, to: &mut [f32]) {
        let (padding, c) = (self.settings.crop_padding, self.channels);
        let left = padding.saturating_sub(change.crop.1).min(self.width);
        let skip = change.crop.1.saturating_sub(padding).min(self.width);
        let len = self.width - left.max(skip);
        to[..left * c].fill(0.0);
        to[left * c..(left + len) * c].copy_from_slice(&from[skip * c..(skip + len) * c]);
        to[(left + len) * c..].fill(0.0);
        if change.flip {
            mirror(to, c);
        }
    }

    /// Cutout (DeVries and Taylor 2017): the square is clipped at the image's border.
    fn punch(&self, (row, column): (usize, usize), to: &mut [f32]) {
        let side = self.settings.cutout;
        let span = |centre: usize, size: usize| {
            let start = centre as isize - (side / 2) as isize;
            start.max(0) as usize..((start + side as isize).max(0) as usize).min(size)
        };
        let columns = span(column, self.width);
        for row in span(row, self.height) {
            let start = row * self.width;
            let line =
                (start + columns.start) * self.channels..(start + columns.end) * self.channels;
            to[line].fill(0.0);
        }
    }
}

/// Mirrors a row of pixels.
fn mirror(row: &mut [f32], channels: usize) {
    row.reverse();
    if channels > 1 {
        row.chunks_exact_mut(channels).for_each(<[f32]>::reverse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHAPE: Shape = Shape::Image { height: 5, width: 4, channels: 3 };

    fn augmenter(crop_padding: usize, horizontal_flip: bool, cutout: usize) -> Augmenter {
        let settings = Augment { crop_padding, horizontal_flip, cutout };
        Augmenter::new(&settings, SHAPE).unwrap().unwrap()
    }

    /// The plain definition, value by value.
    fn slow(a: &Augmenter, change: Change, from: &[f32]) -> Vec<f32> {
        let mut to = vec![0.0; from.len()];
        let half = (a.settings.cutout / 2) as isize;
        let inside = |at: usize, centre: usize| {
            let d = at as isize - centre as isize;
            d >= -half && d < a.settings.cutout as isize - half
        };
        for y in 0..a.height {
            for x in 0..a.width {
                let flipped = if change.flip { a.width - 1 - x } else { x };
                let sy = (y + change.crop.0).wrapping_sub(a.settings.crop_padding);
                let sx = (flipped + change.crop.1).wrapping_sub(a.settings.crop_padding);
                let hole = change.hole.is_some_and(|(cy, cx)| inside(y, cy) && inside(x, cx));
                if sy < a.height && sx < a.width && !hole {
                    for c in 0..a.channels {
                        let at = |y: usize, x: usize| (y * a.width + x) * a.channels + c;
                        to[at(y, x)] = from[at(sy, sx)];
                    }
                }
            }
        }
        to
    }

    proptest! {
        #[test]
        fn it_follows_the_definition_and_repeats(
            padding in 0usize..9, flip: bool, cutout in 0usize..12, seed: u64, epoch: u64, id: u64,
        ) {
            prop_assume!(padding > 0 || flip || cutout > 0);
            let a = augmenter(padding, flip, cutout);
            let from: Vec<f32> = (1..=60).map(|i| i as f32).collect();
            let (mut one, mut two) = (vec![9.0; 60], vec![7.0; 60]);
            a.apply(seed, epoch, id, &from, &mut one);
            a.apply(seed, epoch, id, &from, &mut two);
            prop_assert_eq!(&one, &two);
            prop_assert_eq!(one, slow(&a, a.draw(seed, epoch, id), &from));
        }
    }

    #[test]
    fn every_change_happens() {
        let a = augmenter(2, true, 2);
        let drawn: Vec<Change> = (0..400).map(|id| a.draw(1, 0, id)).collect();
        let flips = drawn.iter().filter(|c| c.flip).count();
        assert!((150..250).contains(&flips), "{flips}");
        for place in 0..5 {
            assert!(
                drawn.iter().any(|c| c.crop.0 == place) && drawn.iter().any(|c| c.crop.1 == place)
            );
        }
        assert_ne!(a.draw(1, 0, 0), a.draw(1, 1, 0));
        assert_ne!(drawn[0], drawn[1]);
    }

    #[test]
    fn vectors_are_refused_and_nothing_stays_nothing() {
        assert_eq!(Augmenter::new(&Augment::default(), Shape::Vector(3)).unwrap(), None);
        let flip = Augment { horizontal_flip: true, ..Augment::default() };
        let error = Augmenter::new(&flip, Shape::Vector(3)).unwrap_err();
        assert!(error.to_string().contains("vectors of 3"));
    }
}
