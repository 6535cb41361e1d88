//! A container's output as the engine sends it: frames of eight bytes' head (which stream, how
//! long) and their bytes.
//!
//! Owns taking the two streams apart. Never waits for anything but the connection.

use crate::channel::StderrTail;
use std::io::{self, ErrorKind, Read};

/// Which stream a piece is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Out,
    /// Standard error, and what the engine itself says of the stream.
    Aside,
}

/// The pieces of both streams.
pub struct Frames<R> {
    from: R,
    which: Which,
    left: usize,
}

impl<R: Read> Frames<R> {
    pub fn new(from: R) -> Self {
        Self { from, which: Which::Out, left: 0 }
    }

    /// Some bytes of one stream; nothing at the end of both.
    pub fn next(&mut self, to: &mut [u8]) -> io::Result<Option<(Which, usize)>> {
        while self.left == 0 {
            let mut head = [0; 8];
            let Some(()) = fill(&mut self.from, &mut head)? else { return Ok(None) };
            self.which = match head[0] {
                // Standard input comes back only where it was asked for, which it is not.
                1 => Which::Out,
                0 | 2 | 3 => Which::Aside,
                _ => return Err(io::Error::new(ErrorKind::InvalidData, "no frame of a container")),
            };
            let length = [head[4], head[5], head[6], head[7]];
            self.left = u32::from_be_bytes(length) as usize;
        }
        let most = to.len().min(self.left);
        match self.from.read(&mut to[..most])? {
            0 if most > 0 => Err(ErrorKind::UnexpectedEof.into()),
            read => {
                self.left -= read;
                Ok(Some((self.which, read)))
            }
        }
    }
}

/// Fills the buffer; nothing where there is no more from its beginning.
fn fill(from: &mut impl Read, to: &mut [u8]) -> io::Result<Option<()>> {
    let mut read = 0;
    while read < to.len() {
        match from.read(&mut to[read..]) {
            Ok(0) if read == 0 => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Some(()))
}

/// Standard output alone; the rest is standard error.
pub struct Output<R> {
    frames: Frames<R>,
    aside: StderrTail,
}

impl<R: Read> Output<R> {
    pub fn new(frames: Frames<R>, aside: StderrTail) -> Self {
        Self { frames, aside }
    }
}

impl<R: Read> Read for Output<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        loop {
            match self.frames.next(to)? {
                None => return Ok(0),
                Some((Which::Out, read)) => return Ok(read),
                Some((Which::Aside, read)) => self.aside.add(&to[..read]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, bytes: &[u8]) -> Vec<u8> {
        let length = (bytes.len() as u32).to_be_bytes();
        [&[kind, 0, 0, 0], &length[..], bytes].concat()
    }

    #[test]
    fn the_streams_are_taken_apart() {
        let wire = [frame(1, b"one"), frame(2, b"oh"), frame(1, b""), frame(1, b"two")].concat();
        let aside = StderrTail::default();
        let mut output = Output::new(Frames::new(&wire[..]), aside.clone());
        let mut read = String::new();
        output.read_to_string(&mut read).unwrap();
        assert_eq!((read.as_str(), aside.text().as_str()), ("onetwo", "oh"));
    }

    #[test]
    fn what_is_cut_off_or_no_frame_is_an_error() {
        let cut = &frame(1, b"abc")[..9];
        let mut output = Output::new(Frames::new(cut), StderrTail::default());
        let error = output.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        let mut output = Output::new(Frames::new(&b"HTTP/1.1 "[..]), StderrTail::default());
        let error = output.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut output = Output::new(Frames::new(&bytes[..]), StderrTail::default());
            let _ = output.read_to_end(&mut Vec::new());
        }
    }
}
