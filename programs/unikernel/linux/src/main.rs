//! The server as a Linux process, with one thread like the unikernels: `micro --listen ADDRESS`.
//!
//! It does not listen on the readiness port if an instance's `init` already reports when the system began.

mod client;

use application::{Application, Connection, Service};
use client::Client;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind, Write};
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

const MOST_EVENTS: usize = 1024;
/// Time to wait for clients to leave if no more files can be opened.
const REST: Duration = Duration::from_millis(10);

struct Server {
    poll: Poll,
    application: Application,
    listeners: Vec<(Service, TcpListener)>,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    no_files: bool,
}

impl Server {
    fn new(address: Ipv4Addr, started_nanoseconds: u64) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listeners = Vec::new();
        for service in Service::ALL {
            let mut listener = match TcpListener::bind((address, service.port()).into()) {
                Err(error) if service == Service::Ready && error.kind() == ErrorKind::AddrInUse => continue,
                other => other?,
            };
            poll.registry().register(&mut listener, Token(listeners.len()), Interest::READABLE)?;
            listeners.push((service, listener));
        }
        let application = Application::new(started_nanoseconds);
        Ok(Self { poll, application, listeners, clients: Vec::new(), free: Vec::new(), no_files: false })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(MOST_EVENTS);
        loop {
            let patience = self.no_files.then_some(REST);
            match self.poll.poll(&mut events, patience) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for event in &events {
                match event.token().0.checked_sub(self.listeners.len()) {
                    None => self.accept(event.token().0),
                    Some(number) => self.attend(number),
                }
            }
            if std::mem::take(&mut self.no_files) {
                (0..self.listeners.len()).for_each(|number| self.accept(number));
            }
        }
    }

    fn accept(&mut self, number: usize) {
        let service = self.listeners[number].0;
        loop {
            match self.listeners[number].1.accept() {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true); // only makes answers later when it fails
                    let connection = Connection::new(&self.application, service);
                    self.add(Client::new(stream, connection));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    self.no_files = true;
                    return;
                }
                Err(_) => {} // the client has gone again
            }
        }
    }

    fn add(&mut self, mut client: Client) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        let token = Token(self.listeners.len() + number);
        let both = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut client.stream, token, both).is_ok() {
            self.clients[number] = Some(client);
            self.attend(number);
        } else {
            self.free.push(number);
        }
    }

    fn attend(&mut self, number: usize) {
        let Some(client) = &mut self.clients[number] else {
            return; // it went earlier in this round
        };
        if !client.attend(&mut self.application) {
            self.clients[number] = None;
            self.free.push(number);
        }
    }
}

fn monotonic_nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is a valid place for a time, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn main() -> ExitCode {
    let started = monotonic_nanoseconds();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--listen", address] => address.parse().ok(),
        _ => None,
    };
    let Some(address) = address else {
        eprintln!("usage: micro --listen ADDRESS");
        return ExitCode::from(2);
    };
    let result = Server::new(address, started).and_then(|mut server| {
        writeln!(io::stdout(), "micro: ready")?;
        server.serve()
    });
    if let Err(error) = result {
        eprintln!("micro: {error}");
    }
    ExitCode::FAILURE
}
