//! The server on Solo5: as a process behind a system call filter (spt), in a KVM guest (hvt) or in QEMU (virtio).

#![no_std]

mod binding;
mod heap;

use binding::Net;
use core::ffi::CStr;
use network::{Options, serve};

const FAILURE: i32 = 1;

/// Entry point for Solo5.
///
/// # Safety
///
/// Only Solo5 may call this, once, with start information that stays valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn solo5_app_main(info: &binding::StartInfo) -> i32 {
    let started = binding::now();
    // SAFETY: this function is called once, and nothing else uses this memory.
    unsafe { heap::begin(info.heap_start, info.heap_size) };
    // SAFETY: Solo5 ends the command line with a zero byte.
    let line = unsafe { CStr::from_ptr(info.command_line) };
    let Some(options) = line.to_str().ok().and_then(Options::parse) else {
        binding::say(Options::USAGE);
        return FAILURE;
    };
    match Net::acquire(c"net") {
        Some(net) => {
            binding::say("micro: ready\n");
            serve(net, &options, started)
        }
        None => binding::say("micro: there is no network device `net`\n"),
    }
    FAILURE
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    binding::say("micro: panic\n");
    binding::abort()
}
