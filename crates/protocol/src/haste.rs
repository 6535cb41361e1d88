//! TCP on networks that lose packets: what is lost is sent again soon.
//!
//! A step is a few small messages, each of which waits for the one before. The system's own times are
//! made for bulk: a packet without another behind it is missed after 200 ms, then after twice as
//! long each time, and a lost request for a connection after a second. Where a fifth of all packets
//! is lost, steps of a millisecond took a second, and silences grew beyond what heartbeats allow.
//! Owns these times. Never retries anything that TCP does not.

use rustix::net::sockopt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// How soon a packet is missed at the earliest: later than the peer's system may hold an answer back.
const MISSED_US: libc::c_int = 25_000;
/// How long an answer may be held back for others to go with it.
const HELD_BACK_US: libc::c_int = 8_000;
/// How long is waited between two attempts at most; a second is the least that Linux lets one ask.
const MISSED_MAX_MS: libc::c_int = 1_000;
/// How long the first request for a connection waits for its answer; each other twice as long.
const FIRST_ANSWER: Duration = Duration::from_millis(300);

/// Options of Linux 6.15 and later, which `libc` does not name yet.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// Small messages are sent at once, and again soon where they were lost.
pub(crate) fn hasten(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // A system that does not have these is slower on a bad network, and right all the same.
    let _ = sockopt::set_tcp_thin_linear_timeouts(stream, true);
    for (option, value) in [
        (TCP_RTO_MIN_US, MISSED_US),
        (TCP_RTO_MAX_MS, MISSED_MAX_MS),
        (TCP_DELACK_MAX_US, HELD_BACK_US),
    ] {
        set(stream, option, value);
    }
    Ok(())
}

/// Connects, at most within a time. Requests that are not answered are made anew, each waiting
/// twice as long as the one before: a far machine has time to answer the later ones.
pub(crate) fn connect(address: &SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let (mut left, mut wait) = (within, FIRST_ANSWER);
    loop {
        match TcpStream::connect_timeout(address, wait.min(left)) {
            Err(e) if e.kind() == ErrorKind::TimedOut && left > wait => {
                (left, wait) = (left - wait, wait * 2);
            }
            done => return done,
        }
    }
}

fn set(stream: &TcpStream, option: libc::c_int, value: libc::c_int) {
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as the stream is borrowed, and the value is as long
    // as is said.
    let _ = unsafe {
        let value: *const libc::c_int = &value;
        libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, option, value.cast(), size)
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn get(stream: &TcpStream, option: libc::c_int) -> Option<libc::c_int> {
        let (mut value, mut size) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: both are as long as is said, and the descriptor is open.
        let failed = unsafe {
            let value: *mut libc::c_int = &mut value;
            let fd = stream.as_raw_fd();
            libc::getsockopt(fd, libc::IPPROTO_TCP, option, value.cast(), &mut size)
        };
        (failed == 0).then_some(value)
    }

    #[test]
    fn what_is_lost_is_sent_again_soon() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(&listener.local_addr().unwrap(), Duration::from_secs(5)).unwrap();
        hasten(&stream).unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::tcp_thin_linear_timeouts(&stream).unwrap());
        // Linux before 6.15 does not know these.
        if let Some(missed) = get(&stream, TCP_RTO_MIN_US) {
            // The kernel counts in ticks of its own.
            assert!((1..2 * MISSED_US).contains(&missed), "{missed}");
            assert_eq!(get(&stream, TCP_RTO_MAX_MS), Some(MISSED_MAX_MS));
        }
    }

    #[test]
    fn who_refuses_is_not_asked_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let refused = connect(&address, Duration::from_secs(5)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
}
