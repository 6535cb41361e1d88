//! Starting values, as in Keras' variance-scaling initialisers (Glorot and Bengio 2010; He et al.
//! 2015), each tensor from its own counted stream.

use super::{Kind, Network};
use planaria_numerics::random::{Purpose, Stream};
use planaria_recipe::model::Initializer;

/// How a tensor starts.
#[derive(Debug, Clone, Copy)]
pub enum Start {
    Zeros,
    Ones,
    /// Within ± the limit.
    Uniform(f32),
    /// Normal with this deviation, cut at twice it.
    Normal(f32),
}

/// A normal variable cut at two deviations has this share of its deviation left.
const CUT_DEVIATION: f64 = 0.879_625_661_034_239_8;

impl Start {
    pub fn drawn(initializer: Initializer, (fan_in, fan_out): (usize, usize)) -> Self {
        let (fan_in, fan_out) = (fan_in as f64, fan_out as f64);
        let uniform = |variance: f64| Self::Uniform((3.0 * variance).sqrt() as f32);
        let normal = |variance: f64| Self::Normal((variance.sqrt() / CUT_DEVIATION) as f32);
        let glorot = 2.0 / (fan_in + fan_out);
        match initializer {
            Initializer::GlorotUniform => uniform(glorot),
            Initializer::GlorotNormal => normal(glorot),
            Initializer::HeUniform => uniform(2.0 / fan_in),
            Initializer::HeNormal => normal(2.0 / fan_in),
            Initializer::LecunUniform => uniform(1.0 / fan_in),
            Initializer::LecunNormal => normal(1.0 / fan_in),
            Initializer::Zeros => Self::Zeros,
            Initializer::Ones => Self::Ones,
        }
    }

    fn fill(self, values: &mut [f32], mut stream: Stream) {
        match self {
            Self::Zeros => values.fill(0.0),
            Self::Ones => values.fill(1.0),
            Self::Uniform(limit) => {
                values.iter_mut().for_each(|v| *v = stream.uniform_in(-limit, limit));
            }
            Self::Normal(deviation) => values.iter_mut().for_each(|v| {
                let mut draw = stream.normal();
                while draw.abs() > 2.0 {
                    draw = stream.normal();
                }
                *v = deviation * draw;
            }),
        }
    }
}

pub fn values(network: &Network, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let mut parameters = vec![0.0; network.parameters];
    let mut state = vec![0.0; network.state];
    for (i, (tensor, start)) in network.tensors.iter().zip(&network.starts).enumerate() {
        let buffer = match tensor.kind {
            Kind::Parameter => &mut parameters,
            Kind::State => &mut state,
        };
        let stream = Stream::new(seed, Purpose::Initialise, i as u64, 0);
        start.fill(&mut buffer[tensor.range.clone()], stream);
    }
    (parameters, state)
}
