//! Inference: normalisations folded into the convolutions below them, examples in small chunks.

use super::Cpu;
use super::normalise;
use super::parts::{Claims, Parts};
use super::shard::{Draw, Results, Shard, copy_output, run};
use super::threads::ThreadPool;
use super::workspace::Workspace;
use crate::buffer::Buffer;
use crate::engines::cpu::program::Compiled;
use crate::loss::Targets;

/// Examples taken at once; chosen for the cache, not part of the arithmetic.
const CHUNK: usize = 32;

/// Weights prepared for inference, kept until they are forgotten.
pub struct Predictor {
    fresh: bool,
    parameters: Vec<f32>,
    packed: Buffer,
    folded: Vec<Vec<f32>>,
    workspaces: Vec<Workspace>,
}

impl Predictor {
    /// Nothing prepared yet.
    pub fn new() -> Self {
        Self {
            fresh: false,
            parameters: vec![],
            packed: Buffer::new(0),
            folded: vec![],
            workspaces: vec![],
        }
    }

    /// The weights have changed.
    pub fn forget(&mut self) {
        self.fresh = false;
    }

    /// Folds and packs the weights, unless that is done.
    pub fn prepare(&mut self, engine: &Cpu, threads: usize, (parameters, state): (&[f32], &[f32])) {
        if self.fresh {
            return;
        }
        let compiled = &engine.compiled;
        while self.workspaces.len() < threads {
            self.workspaces.push(Workspace::new(compiled, &compiled.inference, CHUNK));
        }
        self.parameters = parameters.to_vec();
        self.folded = vec![vec![]; compiled.convs.len()];
        fold_norms(compiled, &mut self.parameters, state, &mut self.folded);
        engine.pack(&self.parameters, &mut self.packed);
        for ws in &mut self.workspaces {
            normalise::from_running(compiled, &mut ws.norms, parameters, state);
        }
        self.fresh = true;
    }

    /// Outputs of examples; after [`Self::prepare`].
    pub fn run(&mut self, engine: &Cpu, pool: &ThreadPool, inputs: &[f32], outputs: &mut [f32]) {
        let (stride, units) = (engine.network.input().len(), engine.network.output().len());
        let examples = inputs.len() / stride;
        assert_eq!(outputs.len(), examples * units, "room for every output");
        let chunks = Claims::new(examples.div_ceil(CHUNK));
        let results = Parts::new(outputs, CHUNK * units);
        let workspaces = Parts::new(&mut self.workspaces, 1);
        let base = Shard {
            isa: engine.isa,
            compiled: &engine.compiled,
            parameters: &self.parameters,
            packed: &self.packed,
            folded: &self.folded,
            inputs: &[],
            examples: 0,
            targets: Targets::Classes(&[]),
            objective: engine.objective,
            draw: Draw::default(),
        };
        pool.run(|thread| {
            // SAFETY: each thread has its workspace.
            let ws = unsafe { &mut workspaces.part(thread)[0] };
            chunks.share(1, thread, pool.threads(), |chunk| {
                // SAFETY: each chunk of outputs is taken once.
                let out = unsafe { results.part(chunk) };
                let (from, n) = (chunk * CHUNK, out.len() / units);
                let inputs = &inputs[from * stride..(from + n) * stride];
                predict_chunk(&Shard { inputs, examples: n, ..base }, ws, out);
            });
        });
    }
}

fn predict_chunk(shard: &Shard<'_>, ws: &mut Workspace, out: &mut [f32]) {
    let program = &shard.compiled.inference;
    run(shard, program, ws, &mut Results::none(), |_| {});
    copy_output(shard, program, ws, out);
}

/// Scales the weights of folded convolutions by their normalisation and computes their biases.
fn fold_norms(compiled: &Compiled, parameters: &mut [f32], state: &[f32], biases: &mut [Vec<f32>]) {
    for (conv, norm) in &compiled.folds {
        let (conv, bias) = (&compiled.convs[*conv], &mut biases[*conv]);
        let norm = &compiled.norms[*norm];
        let mut scales = vec![0f32; conv.filters];
        bias.resize(conv.filters, 0.0);
        for c in 0..conv.filters {
            let (mean, inverse) = normalise::running(norm, state, c);
            let scale = f64::from(parameters[norm.plan.gamma.start + c]) * inverse;
            let own = conv.bias.as_ref().map_or(0.0, |b| f64::from(parameters[b.start + c]));
            let beta = f64::from(parameters[norm.plan.beta.start + c]);
            bias[c] = ((own - mean) * scale + beta) as f32;
            scales[c] = scale as f32;
        }
        for row in parameters[conv.kernel.clone()].chunks_exact_mut(conv.filters) {
            row.iter_mut().zip(&scales).for_each(|(w, s)| *w *= s);
        }
    }
}
