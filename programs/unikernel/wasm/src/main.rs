//! The server as a WebAssembly module in WasmEdge, with one thread like the unikernels: `micro.wasm --listen ADDRESS`.
//!
//! It has no standard library, so that it can be built with the same tools as the unikernels.

#![no_std]
#![no_main]
#![cfg(target_arch = "wasm32")]

extern crate alloc;

mod client;
mod wasi;

use alloc::vec::Vec;
use application::{Application, Connection, Service};
use client::Client;
use rlsf::SmallGlobalTlsf;
use wasi::{Errno, Event, Socket, Subscription};

/// The same algorithm as on Solo5 and ArceOS.
#[global_allocator]
static HEAP: SmallGlobalTlsf = SmallGlobalTlsf::new();

struct Server {
    application: Application,
    listeners: Vec<(Service, Socket)>,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    /// Whether no more files can be opened: then it accepts nobody before a client has left.
    is_full: bool,
}

impl Server {
    fn serve(&mut self) -> Errno {
        let (mut wanted, mut events) = (Vec::new(), Vec::new());
        loop {
            self.subscribe(&mut wanted);
            events.resize(wanted.len(), Event::default());
            let happened = match wasi::wait(&wanted, &mut events) {
                Ok(happened) => happened,
                Err(Errno::INTERRUPTED) => continue,
                Err(error) => return error,
            };
            for event in &events[..happened] {
                match event.number().checked_sub(self.listeners.len()) {
                    None => self.accept(event.number()),
                    Some(number) => self.attend(number),
                }
            }
        }
    }

    /// List the events to wait for: WASI keeps no list between two calls.
    fn subscribe(&self, wanted: &mut Vec<Subscription>) {
        wanted.clear();
        if !self.is_full {
            let listeners = self.listeners.iter().enumerate();
            wanted.extend(listeners.map(|(number, (_, socket))| Subscription::read(number, socket)));
        }
        for (number, client) in self.clients.iter().enumerate() {
            if let Some(client) = client {
                wanted.push(client.next(self.listeners.len() + number));
            }
        }
    }

    fn accept(&mut self, number: usize) {
        let service = self.listeners[number].0;
        loop {
            match self.listeners[number].1.accept() {
                Ok(socket) => {
                    let client = Client::new(socket, Connection::new(&self.application, service));
                    let number = self.free.pop().unwrap_or_else(|| {
                        self.clients.push(None);
                        self.clients.len() - 1
                    });
                    self.clients[number] = Some(client);
                    self.attend(number);
                }
                Err(error) => {
                    self.is_full = error != Errno::AGAIN && self.clients.iter().any(Option::is_some);
                    return;
                }
            }
        }
    }

    fn attend(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else {
            return; // it went earlier in this round
        };
        if !client.attend(&mut self.application) {
            self.clients[number] = None;
            self.free.push(number);
            self.is_full = false;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn _start() {
    let started = wasi::now();
    let Some(address) = wasi::with_listen_argument(|value| value.parse().ok()) else {
        wasi::say("usage: micro.wasm --listen ADDRESS\n");
        wasi::exit(2);
    };
    let mut listeners = Vec::new();
    for service in Service::ALL {
        match Socket::listen(address, service.port()) {
            Ok(socket) => listeners.push((service, socket)),
            Err(_) => {
                wasi::say("micro: cannot listen\n");
                wasi::exit(1);
            }
        }
    }
    let application = Application::new(started);
    wasi::say("micro: ready\n");
    Server { application, listeners, clients: Vec::new(), free: Vec::new(), is_full: false }.serve();
    wasi::say("micro: cannot wait for clients\n");
    wasi::exit(1)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    wasi::say("micro: panic\n");
    core::arch::wasm32::unreachable()
}
