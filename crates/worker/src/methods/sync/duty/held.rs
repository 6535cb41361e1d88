//! Which parameters are there, as far as is known: those after step t in buffer t mod 2.

/// Where the parameters after some step are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// They can be computed with.
    There,
    /// They may still come.
    Coming,
    /// They came and could not be taken.
    Missed,
    /// Later ones have taken their place: so the step is committed.
    Over,
}

/// What is known of a buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Nothing,
    /// All parameters after so many steps.
    Whole(u64),
    /// Some are missing for good, unless they are asked for again.
    Missed(u64),
    /// Later ones than these are being written.
    Over(u64),
}

/// What is known of the two buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Buffers([Held; 2]);

impl Buffers {
    pub(super) fn find(&self, step: u64) -> Place {
        match self.0[index(step)] {
            Held::Whole(held) if held == step => Place::There,
            Held::Missed(held) if held == step => Place::Missed,
            Held::Over(held) if held == step => Place::Over,
            Held::Whole(held) | Held::Missed(held) | Held::Over(held) if held > step => Place::Over,
            _ => Place::Coming,
        }
    }

    pub(super) fn complete(&mut self, step: u64) {
        if matches!(self.find(step), Place::Coming | Place::Missed) {
            self.0[index(step)] = Held::Whole(step);
        }
    }

    pub(super) fn missed(&mut self, step: u64) {
        if self.find(step) == Place::Coming {
            self.0[index(step)] = Held::Missed(step);
        }
    }

    pub(super) fn over(&mut self, step: u64) {
        if self.find(step) != Place::Over {
            self.0[index(step)] = Held::Over(step);
        }
    }

    /// The servers are asked for the parameters after `step` steps and all later ones, so what was
    /// missed of them may come.
    pub(super) fn ask_again(&mut self, step: u64) {
        for held in &mut self.0 {
            if matches!(held, Held::Missed(missed) if *missed >= step) {
                *held = Held::Nothing;
            }
        }
    }
}

fn index(step: u64) -> usize {
    step as usize % 2
}
