//! The part of Solo5's interface that is used here. Its header `solo5.h` documents each function.

use core::ffi::{CStr, c_char, c_int};
use network::{FRAME_LENGTH, Platform};

const OK: c_int = 0;
/// Time for a full transmit queue to drain: another thread empties virtio's.
const PATIENCE_NANOSECONDS: u64 = 20_000_000;

/// What Solo5 passes to the application at its start.
#[repr(C)]
pub struct StartInfo {
    pub command_line: *const c_char,
    pub heap_start: usize,
    pub heap_size: usize,
}

#[repr(C)]
#[derive(Default)]
struct NetInfo {
    address: [u8; 6],
    mtu: usize,
}

unsafe extern "C" {
    safe fn solo5_abort() -> !;
    safe fn solo5_clock_monotonic() -> u64;
    fn solo5_console_write(text: *const u8, size: usize);
    fn solo5_yield(deadline: u64, ready: *mut u64);
    fn solo5_net_acquire(name: *const c_char, handle: *mut u64, info: *mut NetInfo) -> c_int;
    fn solo5_net_write(handle: u64, frame: *const u8, size: usize) -> c_int;
    fn solo5_net_read(handle: u64, frame: *mut u8, size: usize, read: *mut usize) -> c_int;
}

pub fn abort() -> ! {
    solo5_abort()
}

/// The monotonic clock, in nanoseconds.
pub fn now() -> u64 {
    solo5_clock_monotonic()
}

pub fn say(text: &str) {
    // SAFETY: it is a text of this size.
    unsafe { solo5_console_write(text.as_ptr(), text.len()) }
}

/// A network device.
pub struct Net {
    handle: u64,
    address: [u8; 6],
}

impl Net {
    /// Acquire a device of the manifest; fails if none is attached.
    pub fn acquire(name: &CStr) -> Option<Self> {
        let (mut handle, mut info) = (0, NetInfo::default());
        // SAFETY: all three stay valid during the call.
        let result = unsafe { solo5_net_acquire(name.as_ptr(), &raw mut handle, &raw mut info) };
        (result == OK).then_some(Self { handle, address: info.address })
    }
}

impl Platform for Net {
    fn address(&self) -> [u8; 6] {
        self.address
    }

    fn now(&self) -> u64 {
        now()
    }

    fn receive(&mut self, frame: &mut [u8; FRAME_LENGTH]) -> Option<usize> {
        let mut length = 0;
        // SAFETY: there is room for this many bytes.
        let result = unsafe { solo5_net_read(self.handle, frame.as_mut_ptr(), frame.len(), &raw mut length) };
        (result == OK).then_some(length.min(FRAME_LENGTH))
    }

    fn send(&mut self, frame: &[u8]) {
        // SAFETY: there are this many bytes.
        let write = || unsafe { solo5_net_write(self.handle, frame.as_ptr(), frame.len()) } == OK;
        if write() {
            return;
        }
        let until = now() + PATIENCE_NANOSECONDS;
        while now() < until && !write() {
            core::hint::spin_loop(); // a frame that is lost in the end is sent again by TCP
        }
    }

    fn wait(&mut self, until_nanoseconds: u64) {
        // SAFETY: Solo5 accepts a null pointer if the result is not needed.
        unsafe { solo5_yield(until_nanoseconds, core::ptr::null_mut()) }
    }
}
