//! Connections through a SOCKS5 proxy (RFC 1928), without authentication.
//!
//! Owns what is said to the proxy. Names are left to the proxy: it is on the side where they mean
//! something. Never lets the proxy take longer than a stranger may.

use crate::error::Error;
use crate::ticks::{TICK, Ticks};
use std::io::Write;
use std::net::{IpAddr, TcpStream};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// Asks the proxy at the other end of `stream` for a connection to `address`; what goes over
/// `stream` afterwards goes there.
pub(crate) fn connect(
    stream: &mut TcpStream,
    address: &str,
    ticks: &mut Ticks,
) -> Result<(), Error> {
    let failed = |why: String| Error::Connect { address: address.to_owned(), why };
    let request = request(address).map_err(failed)?;
    stream.set_read_timeout(Some(TICK)).map_err(Error::io("setting a time-out"))?;
    stream.set_write_timeout(Some(TICK)).map_err(Error::io("setting a time-out"))?;
    let say = |stream: &mut TcpStream, bytes: &[u8]| {
        stream.write_all(bytes).map_err(Error::io("writing to the proxy"))
    };
    say(stream, &[VERSION, 1, NO_AUTHENTICATION])?;
    let mut method = [0; 2];
    ticks.read_exact(stream, &mut method, "the proxy's greeting")?;
    match method {
        [VERSION, NO_AUTHENTICATION] => {}
        [VERSION, _] => return Err(failed("the proxy asks for authentication".into())),
        other => return Err(failed(format!("the proxy does not speak SOCKS5, but {other:02x?}"))),
    }
    say(stream, &request)?;
    let mut answer = [0; 4];
    ticks.read_exact(stream, &mut answer, "the proxy's answer")?;
    let [version, reply, _, kind] = answer;
    if version != VERSION {
        return Err(failed(format!("the proxy does not speak SOCKS5, but {answer:02x?}")));
    }
    if reply != 0 {
        return Err(failed(format!("the proxy says: {}", meaning(reply))));
    }
    // The address it connects from, of which only the length matters.
    let bytes = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => {
            let mut length = [0];
            ticks.read_exact(stream, &mut length, "the proxy's answer")?;
            usize::from(length[0])
        }
        other => return Err(failed(format!("the proxy's answer has an address of kind {other}"))),
    };
    let mut from = [0; 255 + 2];
    ticks.read_exact(stream, &mut from[..bytes + 2], "the proxy's answer")
}

fn request(address: &str) -> Result<Vec<u8>, String> {
    let (host, port) = address.rsplit_once(':').ok_or("its port is missing")?;
    let port: u16 = port.parse().map_err(|_| format!("`{port}` is not a port"))?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let mut bytes = vec![VERSION, CONNECT, 0];
    match host.parse() {
        Ok(IpAddr::V4(ip)) => {
            bytes.push(IPV4);
            bytes.extend_from_slice(&ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            bytes.push(IPV6);
            bytes.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            let length = u8::try_from(host.len()).ok().filter(|n| *n > 0);
            let length = length.ok_or("its name is empty, or longer than 255 bytes")?;
            bytes.extend_from_slice(&[NAME, length]);
            bytes.extend_from_slice(host.as_bytes());
        }
    }
    bytes.extend_from_slice(&port.to_be_bytes());
    Ok(bytes)
}

fn meaning(reply: u8) -> String {
    match reply {
        1 => "it failed".into(),
        2 => "its rules do not allow the connection".into(),
        3 => "the network cannot be reached".into(),
        4 => "the machine cannot be reached".into(),
        5 => "the connection was refused".into(),
        6 => "it took too long".into(),
        7 | 8 => "it cannot do that".into(),
        other => format!("answer {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_asked_for_in_their_own_form() {
        let check = |address: &str, expect: &[u8]| {
            assert_eq!(request(address).unwrap()[3..], *expect, "{address}");
        };
        check("10.0.0.1:258", &[1, 10, 0, 0, 1, 1, 2]);
        check("[::1]:80", &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 80]);
        check("lab-1:80", &[3, 5, b'l', b'a', b'b', b'-', b'1', 0, 80]);
        for wrong in
            ["lab", "lab:", "lab:http", "lab:70000", ":80", &format!("{}:1", "x".repeat(256))]
        {
            assert!(request(wrong).is_err(), "{wrong}");
        }
    }
}
