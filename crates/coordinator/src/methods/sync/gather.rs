//! One step on its way to a commit: what the servers have said of it so far.

use crate::run::Counted;

/// A step that is being gathered.
#[derive(Debug)]
pub struct Gather {
    /// By server: blocks it holds. One without blocks has nothing to say.
    sizes: Vec<usize>,
    /// By server: sums of squares of its blocks, once it has told them.
    squares: Vec<Option<Vec<f64>>>,
    applied: Vec<bool>,
    counted: Option<Counted>,
}

impl Gather {
    /// For servers with so many blocks each.
    pub fn new(sizes: Vec<usize>) -> Self {
        let n = sizes.len();
        let mut gather = Self { sizes, squares: vec![], applied: vec![], counted: None };
        gather.squares.resize(n, None);
        gather.applied.resize(n, false);
        gather.clear();
        gather
    }

    /// Makes way for the next step.
    pub fn clear(&mut self) {
        for (i, size) in self.sizes.iter().enumerate() {
            self.squares[i] = (*size == 0).then(Vec::new);
            self.applied[i] = *size == 0;
        }
        self.counted = None;
    }

    /// A server has told its squares; an error if they are not one per block.
    pub fn squares(&mut self, server: usize, squares: Vec<f64>) -> Result<(), String> {
        if squares.len() != self.sizes[server] {
            let (got, want) = (squares.len(), self.sizes[server]);
            return Err(format!("server-{server} told {got} sums of squares for {want} blocks"));
        }
        self.squares[server] = Some(squares);
        Ok(())
    }

    /// A server has applied the step.
    pub fn applied(&mut self, server: usize) {
        self.applied[server] = true;
    }

    /// Server 0 has counted all shards.
    pub fn counted(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    /// Norm of the gradient, once all squares are told: added in the order of blocks, whichever server holds
    /// them.
    pub fn norm(&self) -> Option<f64> {
        let all: Option<Vec<&Vec<f64>>> = self.squares.iter().map(Option::as_ref).collect();
        Some(all?.into_iter().flatten().sum::<f64>().sqrt())
    }

    /// What was counted, once every server has applied the step.
    pub fn complete(&self) -> Option<Counted> {
        self.counted.filter(|_| self.applied.iter().all(|a| *a))
    }
}
