//! The server on ArceOS: its boot code, memory and network driver, and the same TCP as on Solo5.
//!
//! ArceOS's own sockets (`axnet`) are not used: their address is fixed when they are built, a connection is forgotten
//! as soon as the server closes it, before the client has received everything, and a client that leaves early makes
//! `accept` panic.

#![no_std]
#![no_main]
#![cfg(target_os = "none")]

extern crate alloc;

mod clock;
mod loader;
mod net;

use axstd::println;
use clock::Clock;
use net::Net;
use network::{Options, serve};

#[unsafe(no_mangle)]
fn main() {
    let clock = Clock::new();
    let started = clock.now();
    let Some(options) = loader::command_line().and_then(Options::parse) else {
        println!("{}", Options::USAGE);
        return;
    };
    match Net::first(clock) {
        Some(net) => {
            println!("micro: ready");
            serve(net, &options, started)
        }
        None => println!("micro: there is no network device"),
    }
}
