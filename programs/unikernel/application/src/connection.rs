//! One client's connection: what it sent and was not answered yet, and the answers that were not sent yet.

use alloc::vec::Vec;

use crate::{Application, LONGEST_REQUEST, Service, Step, http, redis};

/// Requests wait while this much of an answer has not been sent.
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
    /// Begin a connection that a service just accepted.
    pub fn new(application: &Application, service: Service) -> Self {
        let mut output = Vec::new();
        if service == Service::Ready {
            output.extend_from_slice(application.ready.as_bytes());
        }
        Self { service, input: Vec::new(), output, sent: 0, last: service == Service::Ready }
    }

    /// Take bytes from the client and answer the requests that are whole; gives how many were taken.
    ///
    /// After the last answer everything is taken and ignored; while too much waits to be sent, nothing is taken.
    pub fn feed(&mut self, application: &mut Application, bytes: &[u8]) -> usize {
        if self.last {
            return bytes.len();
        }
        let taken = bytes.len().min(self.room());
        self.input.extend_from_slice(&bytes[..taken]);
        self.answer(application);
        taken
    }

    /// How many bytes [`feed`](Self::feed) would take.
    pub fn room(&self) -> usize {
        if self.last {
            usize::MAX
        } else if self.output().len() >= ENOUGH_OUTPUT {
            0
        } else {
            LONGEST_REQUEST - self.input.len()
        }
    }

    /// What is to be sent.
    pub fn output(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Note that the first bytes of the output were sent, and answer what had to wait for it.
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

    /// Whether the connection is to be closed: the last answer was sent.
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
