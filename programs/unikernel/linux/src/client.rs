//! A client's socket and its connection.

use application::{Application, Connection};
use mio::net::TcpStream;
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

/// Size of one read, on the stack.
const PIECE: usize = 16 * 1024;

pub struct Client {
    pub stream: TcpStream,
    connection: Connection,
    said_goodbye: bool,
}

impl Client {
    pub fn new(stream: TcpStream, connection: Connection) -> Self {
        Self { stream, connection, said_goodbye: false }
    }

    /// Move bytes between the socket and the connection as far as possible; return whether more may follow.
    pub fn attend(&mut self, application: &mut Application) -> bool {
        loop {
            let received = match self.receive(application) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => false,
                Err(_) => return false,
            };
            match self.send(application) {
                Ok(()) if received => {}
                Ok(()) => return true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }

    /// Read once, if there is room; return whether more may follow. The end of the client's input is an error.
    fn receive(&mut self, application: &mut Application) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        let room = self.connection.room().min(PIECE);
        if room == 0 {
            return Ok(false);
        }
        let length = self.stream.read(&mut piece[..room])?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.connection.feed(application, &piece[..length]);
        Ok(true)
    }

    /// Write the output; after the last reply, shut down the sending side, so that the client closes.
    fn send(&mut self, application: &mut Application) -> io::Result<()> {
        while !self.connection.output().is_empty() {
            let length = self.stream.write(self.connection.output())?;
            self.connection.sent(application, length);
        }
        if self.connection.is_finished() && !self.said_goodbye {
            self.said_goodbye = true;
            self.stream.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }
}
