//! What carries bytes in order between two processes: TCP, or TLS over it (see [`crate::tls`]).
//!
//! Owns the system calls. Never knows what the bytes mean.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// A connection on which nothing has been said yet; the check of the secret reads and writes it.
pub trait Transport: Read + Write + Send {
    /// Bounds every read and write from now on.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// Takes it apart, for one reading and one writing thread and anyone who wants to end it.
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

    /// Bounds every read from now on.
    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;
}

/// Ends a connection while others read and write it.
pub trait Closing: Send + Sync {
    /// Whoever reads or writes in this direction finds its end.
    fn shutdown(&self, how: Shutdown);
}

impl Transport for TcpStream {
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(timeout)?;
        self.set_write_timeout(timeout)
    }

    fn split(self: Box<Self>) -> io::Result<Halves> {
        self.set_nodelay(true)?;
        self.set_nonblocking(false)?;
        self.set_read_timeout(None)?;
        self.set_write_timeout(None)?;
        let stream = Arc::new(*self);
        Ok(Halves {
            writing: Box::new(Tcp(stream.clone())),
            reading: Box::new(Tcp(stream.clone())),
            closing: Box::new(Tcp(stream)),
        })
    }
}

/// A socket, shared by its halves.
pub(crate) struct Tcp(pub(crate) Arc<TcpStream>);

impl Writing for Tcp {
    fn write_now(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all zeros is a message header without address, parts and ancillary data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_ptr().cast_mut().cast();
        message.msg_iovlen = parts.len() as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            // SAFETY: the standard library lays an `IoSlice` out as an `iovec`; the slices live
            // through the call, which only reads them.
            let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &message, flags) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                    error => return Err(error),
                },
            }
        }
    }

    fn write_within(&mut self, parts: &[IoSlice<'_>], within: Duration) -> io::Result<usize> {
        self.wait_for_room(within)?;
        self.write_now(parts)
    }
}

impl Tcp {
    /// Waits for room to write, at most so long.
    pub(crate) fn wait_for_room(&self, within: Duration) -> io::Result<()> {
        let milliseconds = i32::try_from(within.as_millis()).unwrap_or(i32::MAX);
        wait(&[(self.0.as_raw_fd(), libc::POLLOUT)], milliseconds)
    }
}

/// Waits until one of at most two descriptors has what is asked for, or for so many milliseconds
/// (-1: for ever); a signal may end it early.
pub(crate) fn wait(descriptors: &[(i32, i16)], milliseconds: i32) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; 2];
    for (entry, &(fd, events)) in polled.iter_mut().zip(descriptors) {
        *entry = libc::pollfd { fd, events, revents: 0 };
    }
    // SAFETY: the array lives through the call and its length is given; -1 entries are skipped.
    let found = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as _, milliseconds) };
    match io::Error::last_os_error() {
        error if found < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

impl Reading for Tcp {
    fn read(&mut self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            match (&*self.0).read_vectored(parts) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn set_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(timeout)
    }
}

impl Closing for Tcp {
    fn shutdown(&self, how: Shutdown) {
        // It fails where the peer has ended the connection, and then it is what it should be.
        let _ = self.0.shutdown(how);
    }
}
