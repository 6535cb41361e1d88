//! What carries bytes in order between two processes: a socket, or TLS over it (see [`crate::tls`]).
//!
//! Owns the system calls. Never knows what the bytes mean.

use crate::socket::Socket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A connection on which nothing has been said yet; the check of the secret reads and writes it.
pub trait Transport: Read + Write + Send {
    /// Bounds every read and write from now on.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Takes it apart, for one reading and one writing thread and any thread that wants to end it.
    fn split(self: Box<Self>) -> io::Result<Halves>;
}

/// The parts of a connection.
pub struct Halves {
    pub writing: Box<dyn Writing>,
    pub reading: Box<dyn Reading>,
    /// The end of it.
    pub closing: Box<dyn Closing>,
}

/// The half that writes. `Ok(0)` means that there was no room. Bytes that were not written are
/// offered again first, the same ones: they may have been sealed.
pub trait Writing: Send {
    /// Writes what fits at once.
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Waits for room, at most so long, and writes what fits then.
    fn write_within(&mut self, parts: &[IoSlice<'_>], within: Duration) -> io::Result<usize>;

    /// Everything was written: says so, where that takes words of its own.
    fn finish(&mut self) {}
}

/// The half that reads. `Ok(0)` means that the peer has hung up.
pub trait Reading: Send {
    /// Waits for some bytes and puts them into the parts in order.
    fn read(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// The same, with one read of the socket at most, so that its time-out bounds this too.
    fn read_once(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read(parts)
    }

    /// Bounds every read from now on.
    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;
}

/// Ends a connection while others read and write it.
pub trait Closing: Send + Sync {
    /// A thread that reads or writes in this direction finds its end.
    fn shutdown(&self, how: Shutdown);
}

impl Transport for TcpStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    fn split(self: Box<Self>) -> io::Result<Halves> {
        Box::new(Socket::from(*self)).split()
    }
}

impl Transport for Socket {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    fn split(self: Box<Self>) -> io::Result<Halves> {
        self.set_nodelay()?;
        self.set_nonblocking(false)?;
        self.set_read_timeout(None)?;
        self.set_write_timeout(None)?;
        let socket = Arc::new(*self);
        Ok(Halves {
            writing: Box::new(Shared(socket.clone())),
            reading: Box::new(Shared(socket.clone())),
            closing: Box::new(Shared(socket)),
        })
    }
}

/// A socket, shared by its halves.
pub(crate) struct Shared(pub(crate) Arc<Socket>);

impl Writing for Shared {
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&*self.0, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn write_within(&mut self, parts: &[IoSlice<'_>], within: Duration) -> io::Result<usize> {
        self.wait_for_room(within)?;
        self.write_now(parts)
    }
}

impl Shared {
    /// Waits for room to write, at most so long.
    pub(crate) fn wait_for_room(&self, within: Duration) -> io::Result<()> {
        wait(&mut [PollFd::new(&*self.0, PollFlags::OUT)], Some(within))
    }
}

/// Waits until one of some descriptors has what is asked for, at most so long (for ever where that
/// is left out); a signal may end it early.
pub(crate) fn wait(descriptors: &mut [PollFd<'_>], within: Option<Duration>) -> io::Result<()> {
    let within = within.and_then(|within| Timespec::try_from(within).ok());
    match poll(descriptors, within.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Reading for Shared {
    fn read(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            match self.0.read_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }
}

impl Closing for Shared {
    fn shutdown(&self, how: Shutdown) {
        // It fails where the peer has ended the connection, and then it is what it should be.
        let _ = self.0.shutdown(how);
    }
}
