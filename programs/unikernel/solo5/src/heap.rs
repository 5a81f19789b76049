//! Heap for `alloc`: all memory that Solo5 provides, except the stack at its end.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut, slice_from_raw_parts_mut};
use rlsf::Tlsf;

const STACK: usize = 1024 * 1024;

/// The same algorithm as ArceOS's.
struct Heap(UnsafeCell<Tlsf<'static, u32, u32, 27, 32>>);

// SAFETY: a Solo5 image has one thread and no signals.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(Tlsf::new()));

/// Initialize the heap.
///
/// # Safety
///
/// The memory must belong exclusively to the heap forever, and be unused except for the stack at its end.
pub unsafe fn begin(start: usize, size: usize) {
    let block = slice_from_raw_parts_mut(start as *mut u8, size.saturating_sub(STACK));
    if let Some(block) = NonNull::new(block) {
        // SAFETY: the caller promises it; there is one thread.
        unsafe { (*HEAP.0.get()).insert_free_block_ptr(block) };
    }
}

// SAFETY: Tlsf satisfies GlobalAlloc's contract, and there is one thread.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: there is one thread, and Tlsf does not call back.
        unsafe { (*self.0.get()).allocate(layout) }.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller got the block from `alloc` with this layout.
            unsafe { (*self.0.get()).deallocate(block, layout.align()) };
        }
    }
}
