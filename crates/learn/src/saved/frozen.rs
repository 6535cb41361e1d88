//! The first layers of a saved network, as they are: examples to features.
//!
//! In evaluation mode, the same bits on every machine and for any number of threads. Never trains,
//! and never scales: what comes in is scaled as the network was trained.

use super::{Description, read_tensors};
use crate::Settings;
use crate::engines::{self, Engine};
use planaria_recipe::train::{Loss, Optimizer};
use planaria_recipe::{Layer, Shape};
use std::fmt;

/// The first layers of a saved network and their weights.
pub struct Frozen {
    description: Description,
    engine: Box<dyn Engine>,
    parameters: Vec<f32>,
    state: Vec<f32>,
}

impl Frozen {
    /// The first `layers` of the network in `model.safetensors`; all before its last `Dense` when
    /// left out.
    pub fn new(
        mut description: Description,
        tensors: &[u8],
        layers: Option<usize>,
        threads: usize,
    ) -> Result<Self, String> {
        let kept = kept(&description.layers, layers)?;
        description.layers.truncate(kept);
        description.frozen = 0;
        let network = description.network()?;
        let (parameters, state) = read_tensors(tensors, &network)?;
        if let Some(value) = parameters.iter().chain(&state).find(|v| !v.is_finite()) {
            return Err(format!("its weights hold {value}"));
        }
        let engine = engines::engine(network, settings(threads)).map_err(|e| e.to_string())?;
        Ok(Self { description, engine, parameters, state })
    }

    /// What it is: only the layers that are used.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Shape of an example.
    pub fn input(&self) -> Shape {
        self.engine.network().input()
    }

    /// Shape of what it makes of one.
    pub fn output(&self) -> Shape {
        self.engine.network().output()
    }

    /// Its flat parameters and state.
    pub fn weights(&self) -> (&[f32], &[f32]) {
        (&self.parameters, &self.state)
    }

    /// Features of examples, one after the other; `out` has room for all of them.
    pub fn apply(&mut self, inputs: &[f32], out: &mut [f32]) {
        self.engine.predict((&self.parameters, &self.state), inputs, out);
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("layers", &self.description.layers).finish_non_exhaustive()
    }
}

/// How many layers are used.
fn kept(layers: &[Layer], asked: Option<usize>) -> Result<usize, String> {
    let last = layers.iter().rposition(|layer| matches!(layer, Layer::Dense(_)));
    match (asked, last) {
        (Some(n), _) if n == 0 || n > layers.len() => {
            Err(format!("it has {} layers, so the first {n} cannot be used", layers.len()))
        }
        (Some(n), _) => Ok(n),
        (None, Some(0)) => Err("there is nothing before its last `Dense` layer".into()),
        (None, Some(n)) => Ok(n),
        (None, None) => Ok(layers.len()),
    }
}

/// Nothing is trained; with this loss the last layer's activation is computed like any other.
fn settings(threads: usize) -> Settings {
    Settings {
        seed: 0,
        batch: 1,
        shards: 1,
        threads,
        loss: Loss::Mse,
        label_smoothing: 0.0,
        optimizer: Optimizer::default(),
        clip_norm: None,
        isa: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Network;
    use crate::engines;
    use crate::saved::Trained;
    use planaria_recipe::{DataFacts, Source};

    fn saved() -> (Description, Vec<u8>) {
        let text = "{name: tiny, data: {train: digits}, model: {layers: [{Conv2D: {filters: 4, \
                    kernel_size: 3, activation: relu}}, {BatchNormalization: {}}, {Flatten: {}}, \
                    {Dense: {units: 8, activation: relu}}, {Dense: {units: 3}}]}}";
        let source = Source::parse("tiny.yaml", text.as_bytes(), &[]).unwrap();
        let input = Shape::Image { height: 8, width: 8, channels: 1 };
        let facts = DataFacts { input, classes: Some(3), examples: 9 };
        let description = Description::new(&source.plan(&facts).unwrap(), Vec::new());
        let network = description.network().unwrap();
        let (parameters, state) = network.initialise(5);
        let trained = Trained { parameters: &parameters, state: &state, wide: None };
        let bytes = description.tensors(&network, &trained, "tiny-1");
        (description, bytes)
    }

    #[test]
    fn a_head_on_it_is_the_whole_network_again() {
        let (description, bytes) = saved();
        let inputs: Vec<f32> = (0..5 * 64).map(|i| (i * 37 % 101) as f32 / 101.0).collect();
        let whole = description.network().unwrap();
        let (parameters, state) = read_tensors(&bytes, &whole).unwrap();
        let mut trainer = engines::trainer(whole, settings(1)).unwrap();
        trainer.restore(&crate::Weights { parameters, state, optimizer: Vec::new() }).unwrap();
        let mut expected = vec![0.0; 5 * 3];
        trainer.predict(&inputs, &mut expected);

        let mut frozen = Frozen::new(description.clone(), &bytes, None, 2).unwrap();
        assert_eq!(frozen.output(), Shape::Vector(8));
        let mut features = vec![0.0; 5 * 8];
        frozen.apply(&inputs, &mut features);
        let head = Network::new(&description.layers[4..], Shape::Vector(8)).unwrap();
        let own = trainer.parameters()[frozen.weights().0.len()..].to_vec();
        assert_eq!(own.len(), head.parameter_count());
        let mut head = engines::trainer(head, settings(1)).unwrap();
        let own = crate::Weights { parameters: own, state: Vec::new(), optimizer: Vec::new() };
        head.restore(&own).unwrap();
        let mut outputs = vec![0.0; 5 * 3];
        head.predict(&features, &mut outputs);
        assert_eq!(outputs, expected);

        let (kernel, mut again) = (&features[..8], vec![0.0; 8]);
        frozen.apply(&inputs[..64], &mut again);
        assert_eq!(kernel, again, "how many come at a time does not matter");
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let (description, bytes) = saved();
        let new = |layers| Frozen::new(description.clone(), &bytes, layers, 1);
        assert_eq!(new(Some(3)).unwrap().output(), Shape::Vector(6 * 6 * 4));
        assert!(new(Some(6)).unwrap_err().contains("it has 5 layers"));
        let mut other = description.clone();
        other.layers.drain(..4);
        let why = Frozen::new(other, &bytes, None, 1).unwrap_err();
        assert!(why.contains("nothing before its last `Dense`"), "{why}");
        let mut other = description.clone();
        other.input = vec![9, 9, 1];
        let why = Frozen::new(other, &bytes, None, 1).unwrap_err();
        assert!(why.contains("has shape"), "{why}");
    }
}
