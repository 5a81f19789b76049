//! The server itself: bytes in, bytes out. Sockets, clocks and memory are the business of the system beneath.
//!
//! A [`Connection`] is fed what its client sends, in pieces of any size, and holds what is to be sent back. Both sides
//! are bounded, and so is the [`Application`]'s store: strangers can make a connection end, never the server.

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

/// The longest request, and so the most that is kept of one that is not whole.
const LONGEST_REQUEST: usize = 16 * 1024;

/// What answers at a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A fixed page for every GET.
    Http,
    /// PING, GET, SET and what benchmark clients ask at the start.
    Redis,
    /// One line that says when the program started; then the connection is closed.
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

/// What the connections share.
pub struct Application {
    store: Store,
    ready: String,
}

impl Application {
    /// Begin, with nothing stored; `started` is the system's monotonic clock at the program's start.
    pub fn new(started_nanoseconds: u64) -> Self {
        Self { store: Store::default(), ready: format!("tare {started_nanoseconds}\n") }
    }
}

/// How far the first request of an input was answered.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// It is not whole yet.
    Partial,
    /// It was answered and took this many bytes.
    Answered(usize),
    /// It was answered, or refused, and nothing after it will be.
    Last,
}
