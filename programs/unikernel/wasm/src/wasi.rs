//! The calls of WASI (preview 1) that the server needs, and WasmEdge's calls for sockets, which WASI lacks.

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::net::Ipv4Addr;

const STANDARD_OUTPUT: u32 = 1;
const MONOTONIC: u32 = 1;
const IPV4: u32 = 1;
const STREAM: u32 = 2;
const NONBLOCKING: u32 = 1 << 2;
const SEND: u32 = 1 << 1;
const LONGEST_COMMAND_LINE: usize = 1024;
const MOST_ARGUMENTS: usize = 8;

/// WASI's number of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(u16);

impl Errno {
    pub const AGAIN: Self = Self(6);
    pub const INTERRUPTED: Self = Self(27);
}

/// Bytes to read into or to write; WasmEdge's addresses have the same form.
#[repr(C)]
struct Buffer {
    start: *const u8,
    length: usize,
}

/// The event to wait for: a socket can be read or written.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Subscription {
    data: u64,
    kind: u64, // one byte in WASI; the others are padding
    socket: u32,
    unused: [u64; 3], // of timers
}

impl Subscription {
    /// Wait until a socket can be read; `number` comes back with the event.
    pub fn read(number: usize, socket: &Socket) -> Self {
        Self { data: number as u64, kind: 1, socket: socket.0, unused: [0; 3] }
    }

    /// Wait until a socket can be written.
    pub fn write(number: usize, socket: &Socket) -> Self {
        Self { kind: 2, ..Self::read(number, socket) }
    }
}

/// An event that happened.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Event {
    data: u64,
    unused: [u64; 3],
}

impl Event {
    /// The number in its subscription.
    pub fn number(&self) -> usize {
        self.data as usize
    }
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
unsafe extern "C" {
    fn args_get(arguments: *mut *const c_char, bytes: *mut u8) -> u16;
    fn args_sizes_get(count: *mut usize, length: *mut usize) -> u16;
    fn clock_time_get(clock: u32, precision: u64, nanoseconds: *mut u64) -> u16;
    fn fd_close(socket: u32) -> u16;
    fn fd_fdstat_set_flags(socket: u32, flags: u32) -> u16;
    fn fd_write(file: u32, buffers: *const Buffer, count: usize, written: *mut usize) -> u16;
    fn poll_oneoff(wanted: *const Subscription, events: *mut Event, count: usize, happened: *mut usize) -> u16;
    fn proc_exit(code: u32) -> !;
    fn sock_accept(listener: u32, socket: *mut u32) -> u16;
    fn sock_bind(socket: u32, address: *const Buffer, port: u32) -> u16;
    fn sock_listen(socket: u32, backlog: u32) -> u16;
    fn sock_open(family: u32, kind: u32, socket: *mut u32) -> u16;
    fn sock_recv(
        socket: u32,
        buffers: *const Buffer,
        count: usize,
        flags: u32,
        received: *mut usize,
        received_flags: *mut u32,
    ) -> u16;
    fn sock_send(socket: u32, buffers: *const Buffer, count: usize, flags: u32, sent: *mut usize) -> u16;
    fn sock_shutdown(socket: u32, sides: u32) -> u16;
}

fn check(result: u16) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno(result)) }
}

/// A TCP socket that never blocks, closed when it is dropped.
pub struct Socket(u32);

impl Socket {
    /// Listen at an address.
    pub fn listen(address: Ipv4Addr, port: u16) -> Result<Self, Errno> {
        let mut number = 0;
        // SAFETY: the place for the number is valid.
        check(unsafe { sock_open(IPV4, STREAM, &raw mut number) })?;
        let socket = Self(number);
        let octets = address.octets();
        let buffer = Buffer { start: octets.as_ptr(), length: octets.len() };
        // SAFETY: the address is valid during the call.
        check(unsafe { sock_bind(number, &raw const buffer, port.into()) })?;
        // SAFETY: no memory is passed.
        check(unsafe { sock_listen(number, 4096) })?;
        socket.without_blocking()
    }

    /// Accept a connection.
    pub fn accept(&self) -> Result<Self, Errno> {
        let mut number = 0;
        // SAFETY: the place for the number is valid.
        check(unsafe { sock_accept(self.0, &raw mut number) })?;
        // WasmEdge 0.14 would set a flag of its call to accept on the listener.
        Self(number).without_blocking()
    }

    /// Read once; 0 bytes are the end of the input.
    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize, Errno> {
        let (mut length, mut flags) = (0, 0);
        let buffer = Buffer { start: bytes.as_mut_ptr(), length: bytes.len() };
        // SAFETY: all memory is valid during the call.
        check(unsafe { sock_recv(self.0, &raw const buffer, 1, 0, &raw mut length, &raw mut flags) })?;
        Ok(length)
    }

    /// Write once; return the number of written bytes.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let mut length = 0;
        let buffer = Buffer { start: bytes.as_ptr(), length: bytes.len() };
        // SAFETY: all memory is valid during the call.
        check(unsafe { sock_send(self.0, &raw const buffer, 1, 0, &raw mut length) })?;
        Ok(length)
    }

    /// Shut down the sending side.
    pub fn end(&self) -> Result<(), Errno> {
        // SAFETY: no memory is passed.
        check(unsafe { sock_shutdown(self.0, SEND) })
    }

    fn without_blocking(self) -> Result<Self, Errno> {
        // SAFETY: no memory is passed.
        check(unsafe { fd_fdstat_set_flags(self.0, NONBLOCKING) })?;
        Ok(self)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // SAFETY: no memory is passed, and nothing else uses the number.
        unsafe { fd_close(self.0) };
    }
}

/// Wait for one of the events at least; return the number of events at the start of `events`, which is as long.
pub fn wait(wanted: &[Subscription], events: &mut [Event]) -> Result<usize, Errno> {
    let mut happened = 0;
    // SAFETY: there is room for one event of each subscription.
    check(unsafe {
        poll_oneoff(wanted.as_ptr(), events[..wanted.len()].as_mut_ptr(), wanted.len(), &raw mut happened)
    })?;
    Ok(happened)
}

/// The system's monotonic clock.
pub fn now() -> u64 {
    let mut nanoseconds = 0;
    // SAFETY: the place for the time is valid.
    unsafe { clock_time_get(MONOTONIC, 1, &raw mut nanoseconds) };
    nanoseconds
}

/// Write text to the standard output.
pub fn say(text: &str) {
    let buffer = Buffer { start: text.as_ptr(), length: text.len() };
    let mut written = 0;
    // SAFETY: all memory is valid during the call.
    unsafe { fd_write(STANDARD_OUTPUT, &raw const buffer, 1, &raw mut written) };
}

/// End the program.
pub fn exit(code: u32) -> ! {
    // SAFETY: no memory is passed.
    unsafe { proc_exit(code) }
}

/// Call a function with the value after `--listen`, the only option; None without one, or with other arguments.
pub fn with_listen_argument<T>(function: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let (mut count, mut length) = (0, 0);
    // SAFETY: both places are valid.
    check(unsafe { args_sizes_get(&raw mut count, &raw mut length) }).ok()?;
    let mut bytes = [0; LONGEST_COMMAND_LINE];
    let mut words = [MaybeUninit::<*const c_char>::uninit(); MOST_ARGUMENTS];
    if count != 3 || length > bytes.len() {
        return None;
    }
    // SAFETY: there is room for the arguments.
    check(unsafe { args_get(words.as_mut_ptr().cast(), bytes.as_mut_ptr()) }).ok()?;
    // SAFETY: WASI has written three words, each of which ends with a zero byte.
    let [option, value] = [1, 2].map(|number| unsafe { CStr::from_ptr(words[number].assume_init()) }.to_str().ok());
    if option? == "--listen" { function(value?) } else { None }
}
