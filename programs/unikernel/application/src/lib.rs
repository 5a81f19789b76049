//! The server itself: bytes in, bytes out. The system below provides sockets, clocks and memory.
//!
//! A [`Connection`] is fed the client's bytes, in pieces of any size, and holds the bytes to send back. Both sides
//! are bounded, and so is the [`Application`]'s store: clients can end a connection, but never the server.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod connection;
mod http;
mod redis;
mod store;

pub use connection::Connection;

use alloc::format;
use alloc::string::String;
use store::Store;

/// The longest request, and so the limit of bytes stored of an incomplete one.
const LONGEST_REQUEST: usize = 16 * 1024;

/// A service at a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A fixed page for every GET.
    Http,
    /// PING, GET, SET and the commands that benchmark clients send at the start.
    Redis,
    /// One line with the time when the program started; then the connection is closed.
    Ready,
}

impl Service {
    /// Every service.
    pub const ALL: [Self; 3] = [Self::Http, Self::Redis, Self::Ready];

    /// The TCP port of the service.
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 18080,
            Self::Redis => 16379,
            Self::Ready => 17007,
        }
    }

    /// The service at a TCP port.
    pub fn at(port: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.port() == port)
    }
}

/// State that the connections share.
pub struct Application {
    store: Store,
    ready: String,
}

impl Application {
    /// Create an empty application; `started` is the system's monotonic clock at the program's start.
    pub fn new(started_nanoseconds: u64) -> Self {
        Self { store: Store::default(), ready: format!("tare {started_nanoseconds}\n") }
    }
}

/// How far the first request of an input was processed.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is incomplete.
    Partial,
    /// It was processed and took this many bytes.
    Answered(usize),
    /// It was processed or refused, and later ones will not be processed.
    Last,
}
