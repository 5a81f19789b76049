//! ArceOS's clock, calibrated: where the CPU does not report its frequency, as in QEMU, ArceOS takes it for 4 GHz.

use axhal::mem::phys_to_virt;
use axhal::time::monotonic_time_nanos;

/// The High Precision Event Timer of a `q35` machine, and its registers.
const HPET: usize = 0xfed0_0000;
const CAPABILITIES: usize = 0x00;
const CONFIGURATION: usize = 0x10;
const COUNTER: usize = 0xf0;
const ENABLE: u64 = 1;
/// The specification's longest period of the counter, in femtoseconds.
const LONGEST_PERIOD: u64 = 100_000_000;
const COMPARED_NANOSECONDS: u64 = 1_000_000;
const FRACTION_BITS: u32 = 32;

/// A clock that counts from the machine's start.
#[derive(Clone, Copy)]
pub struct Clock {
    /// Nanoseconds for each of ArceOS's, with `FRACTION_BITS` binary places.
    scale: u128,
}

impl Clock {
    /// Compare the clocks for a millisecond; without an HPET, use ArceOS's clock unchanged.
    pub fn new() -> Self {
        let period = read(CAPABILITIES) >> 32;
        if !(1..=LONGEST_PERIOD).contains(&period) {
            return Self { scale: 1 << FRACTION_BITS };
        }
        write(CONFIGURATION, read(CONFIGURATION) | ENABLE);
        let (began, counter) = (monotonic_time_nanos(), read(COUNTER));
        let mut passed = 0;
        while passed < COMPARED_NANOSECONDS {
            passed = read(COUNTER).wrapping_sub(counter) * period / 1_000_000;
        }
        let claimed = monotonic_time_nanos().saturating_sub(began).max(1);
        Self { scale: (u128::from(passed) << FRACTION_BITS) / u128::from(claimed) }
    }

    /// The nanoseconds since the machine's start.
    pub fn now(self) -> u64 {
        ((u128::from(monotonic_time_nanos()) * self.scale) >> FRACTION_BITS) as u64
    }
}

fn register(offset: usize) -> *mut u64 {
    phys_to_virt((HPET + offset).into()).as_mut_ptr().cast()
}

fn read(offset: usize) -> u64 {
    // SAFETY: the address belongs to the device, or to nothing at all and reads as ones.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: usize, value: u64) {
    // SAFETY: the device is there, and nothing else uses it.
    unsafe { register(offset).write_volatile(value) }
}
