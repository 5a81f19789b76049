//! A client's socket and its connection.

use crate::wasi::{Errno, Socket, Subscription};
use application::{Application, Connection};

/// Size of one read, on the stack.
const PIECE: usize = 16 * 1024;

pub struct Client {
    socket: Socket,
    connection: Connection,
    said_goodbye: bool,
}

impl Client {
    pub fn new(socket: Socket, connection: Connection) -> Self {
        Self { socket, connection, said_goodbye: false }
    }

    /// The event to wait for: room for the output that could not be sent, otherwise input.
    pub fn next(&self, number: usize) -> Subscription {
        if self.connection.output().is_empty() {
            Subscription::read(number, &self.socket)
        } else {
            Subscription::write(number, &self.socket)
        }
    }

    /// Move bytes between the socket and the connection as far as possible; return whether more may follow.
    pub fn attend(&mut self, application: &mut Application) -> bool {
        loop {
            let received = match self.receive(application) {
                Ok(received) => received,
                Err(Some(Errno::AGAIN)) => false,
                Err(_) => return false,
            };
            match self.send(application) {
                Ok(()) if received => {}
                Ok(()) => return true,
                Err(error) => return error == Errno::AGAIN,
            }
        }
    }

    /// Read once, if there is room; return whether more may follow. The end of the client's input is an error, None.
    fn receive(&mut self, application: &mut Application) -> Result<bool, Option<Errno>> {
        let mut piece = [0; PIECE];
        let room = self.connection.room().min(PIECE);
        if room == 0 {
            return Ok(false);
        }
        let length = self.socket.receive(&mut piece[..room]).map_err(Some)?;
        if length == 0 {
            return Err(None);
        }
        self.connection.feed(application, &piece[..length]);
        Ok(true)
    }

    /// Write the output; after the last reply, shut down the sending side, so that the client closes.
    fn send(&mut self, application: &mut Application) -> Result<(), Errno> {
        while !self.connection.output().is_empty() {
            let length = self.socket.send(self.connection.output())?;
            self.connection.sent(application, length);
        }
        if self.connection.is_finished() && !self.said_goodbye {
            self.said_goodbye = true;
            self.socket.end()?;
        }
        Ok(())
    }
}
