//! One client's connection: requests without a reply, and replies that must still be sent.

use alloc::vec::Vec;

use crate::{Application, LONGEST_REQUEST, Service, Step, http, redis};

/// Requests wait while this many bytes must still be sent.
const ENOUGH_OUTPUT: usize = 16 * 1024;

/// One client's connection.
pub struct Connection {
    service: Service,
    input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    last: bool,
}

impl Connection {
    /// Create a connection that a service just accepted.
    pub fn new(application: &Application, service: Service) -> Self {
        let mut output = Vec::new();
        if service == Service::Ready {
            output.extend_from_slice(application.ready.as_bytes());
        }
        Self { service, input: Vec::new(), output, sent: 0, last: service == Service::Ready }
    }

    /// Accept bytes from the client and reply to complete requests; return the number of accepted bytes.
    ///
    /// After the last reply, all input is ignored; while too much output waits, no input is accepted.
    pub fn feed(&mut self, application: &mut Application, bytes: &[u8]) -> usize {
        if self.last {
            return bytes.len();
        }
        let taken = bytes.len().min(self.room());
        self.input.extend_from_slice(&bytes[..taken]);
        self.answer(application);
        taken
    }

    /// The number of bytes that [`feed`](Self::feed) would accept.
    pub fn room(&self) -> usize {
        if self.last {
            usize::MAX
        } else if self.output().len() >= ENOUGH_OUTPUT {
            0
        } else {
            LONGEST_REQUEST - self.input.len()
        }
    }

    /// The output to send.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Remove sent bytes from the output, and reply to requests that had to wait for it.
    pub fn sent(&mut self, application: &mut Application, length: usize) {
        self.sent += length;
        if self.sent >= self.output.len() {
            self.output.clear();
            self.sent = 0;
            if !self.last {
                self.answer(application);
            }
        }
    }

    /// Whether the connection must be closed: the last reply was sent.
    pub fn is_finished(&self) -> bool {
        self.last && self.output().is_empty()
    }

    fn answer(&mut self, application: &mut Application) {
        let mut done = 0;
        while done < self.input.len() && self.output().len() < ENOUGH_OUTPUT && !self.last {
            let input = &self.input[done..];
            let step = match self.service {
                Service::Http => http::answer(input, &mut self.output),
                Service::Redis => redis::answer(&mut application.store, input, &mut self.output),
                Service::Ready => Step::Last,
            };
            match step {
                Step::Answered(length) => done += length,
                Step::Last => self.last = true,
                Step::Partial if input.len() < LONGEST_REQUEST => break,
                Step::Partial => {
                    self.output.extend_from_slice(match self.service {
                        Service::Http => http::TOO_LARGE,
                        Service::Redis | Service::Ready => redis::TOO_LARGE,
                    });
                    self.last = true;
                }
            }
        }
        if self.last {
            self.input = Vec::new();
        } else {
            self.input.drain(..done);
        }
    }
}
