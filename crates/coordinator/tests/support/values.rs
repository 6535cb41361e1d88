//! Values as they would come from a link.

use planaria_coordinator::parameters::chunk::Bulk;
use planaria_protocol::Error;

pub struct Values<'a>(pub &'a [f32]);

impl Bulk for Values<'_> {
    fn bytes(&self) -> usize {
        self.0.len() * 4
    }

    fn read(&mut self, into: &mut [f32]) -> Result<(), Error> {
        let (now, rest) = self.0.split_at(into.len());
        into.copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }

    fn skip(&mut self, values: usize) -> Result<(), Error> {
        self.0 = &self.0[values..];
        Ok(())
    }
}
