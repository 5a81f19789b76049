//! The application over smoltcp, for systems that provide Ethernet frames instead of sockets.
//!
//! A socket is created when a client's first segment arrives, so that a burst of clients gets as many sockets as it
//! needs, and a repeated first segment finds the existing socket. It is released as soon as both sides have closed:
//! TIME-WAIT would fill the table if each request has a separate connection.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod frames;
mod options;

pub use frames::{FRAME_LENGTH, Platform};
pub use options::Options;

use alloc::vec;
use alloc::vec::Vec;
use application::{Application, Connection, Service};
use frames::{Frames, Greeting};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr, IpEndpoint};

/// Limit of connections, including those that are closing.
const MOST_CONNECTIONS: usize = 2000;
const BUFFER_LENGTH: usize = 8 * 1024;
/// Frames that are received before replies are sent.
const BURST: usize = 64;
/// Time after which a connection without traffic is dropped.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Serve on a platform's network forever; `started_nanoseconds` is its clock at the program's start.
pub fn serve<P: Platform>(platform: P, options: &Options, started_nanoseconds: u64) -> ! {
    let mut server = Server::new(platform, options, started_nanoseconds);
    loop {
        server.turn();
    }
}

/// One client's connection and its socket.
struct Client {
    socket: SocketHandle,
    remote: IpEndpoint,
    service: Service,
    connection: Connection,
}

struct Server<P> {
    application: Application,
    frames: Frames<P>,
    interface: Interface,
    sockets: SocketSet<'static>,
    clients: Vec<Client>,
    spare: Vec<Socket<'static>>,
}

impl<P: Platform> Server<P> {
    fn new(platform: P, options: &Options, started_nanoseconds: u64) -> Self {
        let mut config = Config::new(HardwareAddress::Ethernet(EthernetAddress(platform.address())));
        config.random_seed = started_nanoseconds;
        let mut frames = Frames::new(platform);
        let mut interface = Interface::new(config, &mut frames, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::Ipv4(options.ipv4)); // it is empty, so there is room for one
        });
        if let Some(gateway) = options.gateway {
            let _ = interface.routes_mut().add_default_ipv4_route(gateway); // likewise
        }
        let sockets = SocketSet::new(Vec::new());
        let application = Application::new(started_nanoseconds);
        Self { application, frames, interface, sockets, clients: Vec::new(), spare: Vec::new() }
    }

    /// Receive frames, serve the clients, send, and wait if there was nothing to do.
    fn turn(&mut self) {
        let now = self.frames.now();
        let taken = (0..BURST).take_while(|_| self.take_in(now)).count();
        for number in (0..self.clients.len()).rev() {
            self.attend(number);
        }
        while self.interface.poll_egress(now, &mut self.frames, &mut self.sockets) != PollResult::None {}
        if taken == 0 {
            let latest = now + LONGEST_WAIT;
            let until = self.interface.poll_at(now, &self.sockets).map_or(latest, |at| at.min(latest));
            if until > now {
                self.frames.wait(until);
            }
        }
    }

    /// Process one frame, if there is one.
    fn take_in(&mut self, now: Instant) -> bool {
        if !self.frames.receive() {
            return false;
        }
        let newcomer = self.frames.greeting().filter(|greeting| self.is_new(greeting));
        if newcomer.as_ref().is_some_and(|greeting| !self.welcome(greeting)) {
            return true; // like a full backlog: the client will try again
        }
        self.interface.poll_ingress_single(now, &mut self.frames, &mut self.sockets);
        if newcomer.is_some() && self.sockets.get::<Socket>(self.clients[self.clients.len() - 1].socket).is_listening()
        {
            self.dismiss(self.clients.len() - 1); // smoltcp found fault with the segment
        }
        true
    }

    fn is_new(&self, greeting: &Greeting) -> bool {
        !self.clients.iter().any(|one| one.remote == greeting.remote && one.service == greeting.service)
    }

    /// Create a socket for a new client; return whether there was room.
    fn welcome(&mut self, greeting: &Greeting) -> bool {
        if self.clients.len() >= MOST_CONNECTIONS {
            return false;
        }
        let mut socket = self.spare.pop().unwrap_or_else(new_socket);
        if socket.listen(greeting.service.port()).is_err() {
            return false;
        }
        let socket = self.sockets.add(socket);
        let connection = Connection::new(&self.application, greeting.service);
        self.clients.push(Client { socket, remote: greeting.remote, service: greeting.service, connection });
        true
    }

    fn dismiss(&mut self, number: usize) {
        let client = self.clients.swap_remove(number);
        let smoltcp::socket::Socket::Tcp(mut socket) = self.sockets.remove(client.socket);
        socket.abort(); // sends nothing, because it is no longer in a set
        self.spare.push(socket);
    }

    /// Move bytes between a client's socket and its connection as far as they go.
    fn attend(&mut self, number: usize) {
        let Client { socket, connection, .. } = &mut self.clients[number];
        let socket = self.sockets.get_mut::<Socket>(*socket);
        if matches!(socket.state(), State::Closed | State::TimeWait) {
            return self.dismiss(number);
        }
        let mut progress = true;
        while progress {
            progress = false;
            if socket.can_recv() && connection.room() > 0 {
                let taken = socket.recv(|bytes| {
                    let taken = connection.feed(&mut self.application, bytes);
                    (taken, taken)
                });
                progress = taken.is_ok_and(|taken| taken > 0);
            }
            if socket.can_send() && !connection.output().is_empty() {
                let sent = socket.send_slice(connection.output()).unwrap_or(0);
                connection.sent(&mut self.application, sent);
                progress |= sent > 0;
            }
        }
        let client_closed = socket.state() == State::CloseWait && !socket.can_recv() && connection.output().is_empty();
        if connection.is_finished() && socket.may_send() || client_closed {
            socket.close();
        }
    }
}

fn new_socket() -> Socket<'static> {
    let mut socket = Socket::new(SocketBuffer::new(vec![0; BUFFER_LENGTH]), SocketBuffer::new(vec![0; BUFFER_LENGTH]));
    socket.set_nagle_enabled(false);
    socket.set_timeout(Some(PATIENCE));
    socket.set_keep_alive(Some(PATIENCE / 2));
    socket
}
