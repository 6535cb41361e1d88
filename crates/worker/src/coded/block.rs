//! The rows of a slot: encoded as the data's rows are read, some at a time.

use super::Value;
use planaria_data::{Batch, Loader};
use planaria_learn::linear::number::Bounds;
use planaria_learn::linear::{Model, plain};
use planaria_numerics::coding::Slot;
use planaria_numerics::coding::blocks::{Blocks, Encoder, Rows};
use planaria_numerics::coding::exact::DataScale;
use planaria_numerics::coding::generator::Generator;
use planaria_protocol::message::Trouble;

/// Rows that are read and encoded at a time.
const ROWS_AT_ONCE: u64 = 512;

/// What a slot stores.
#[derive(Debug, Clone, PartialEq)]
pub struct Block<E> {
    /// Row by row.
    pub rows: Vec<E>,
    /// What bounds products of all rows of the data; floats have no such bounds.
    pub bounds: Bounds,
}

/// Encodes the rows of `slot` from all rows that the loader gives, in their order.
pub fn encode<E: Value>(
    generator: &Generator<E::Scalar>,
    slot: Slot,
    blocks: Blocks,
    model: &Model,
    scale: DataScale,
    loader: &Loader,
) -> Result<Block<E>, Trouble> {
    let width = model.width();
    let wrong =
        |e: planaria_numerics::coding::Error| Trouble { fix_input: true, ..Trouble::new(e) };
    let places = 0..blocks.height();
    let mut encoder = Encoder::<E>::new(generator, slot, blocks, width, places).map_err(wrong)?;
    let mut bounds = Bounds::new(width);
    let mut batch = Batch::default();
    let count = loader.part().len();
    for first in (0..count).step_by(ROWS_AT_ONCE as usize) {
        let places = first..(first + ROWS_AT_ONCE).min(count);
        loader.fill(0, places, &mut batch).map_err(Trouble::new)?;
        let wide = plain::with_ones(model.features, width, &batch.inputs);
        let values = E::data(scale, width, &wide).map_err(wrong)?;
        let rows = Rows::Dense { width, values: &values };
        E::bound(&mut bounds, &rows).map_err(wrong)?;
        encoder.push(first as usize, &rows).map_err(wrong)?;
    }
    Ok(Block { rows: encoder.finish().map_err(wrong)?, bounds })
}
