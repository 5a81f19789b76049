//! Information from the loader, QEMU, as in the Multiboot specification, version 1.

use axhal::dtb::get_bootarg;
use axhal::mem::phys_to_virt;
use core::ffi::CStr;

const HAS_COMMAND_LINE: u32 = 1 << 2;

/// The first fields of the loader's information.
#[repr(C)]
struct Information {
    flags: u32,
    memory: [u32; 2],
    boot_device: u32,
    command_line: u32,
}

/// The command line; its first word is the image's path.
pub fn command_line() -> Option<&'static str> {
    let at: *const Information = phys_to_virt(get_bootarg().into()).as_ptr().cast();
    // SAFETY: ArceOS passes on the address that the loader gave; it is below 1 MiB, which ArceOS does not use.
    let information = unsafe { at.read_unaligned() };
    if information.flags & HAS_COMMAND_LINE == 0 {
        return None;
    }
    let line = phys_to_virt((information.command_line as usize).into());
    // SAFETY: `loader.lds` keeps it; the specification promises a zero byte at the end.
    unsafe { CStr::from_ptr(line.as_ptr().cast()) }.to_str().ok()
}
