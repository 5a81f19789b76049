//! ArceOS's network driver.

use crate::clock::Clock;
use axdriver::prelude::{AxNetDevice, NetDriverOps};
use network::{FRAME_LENGTH, Platform};

pub struct Net {
    device: AxNetDevice,
    clock: Clock,
}

impl Net {
    /// The first network device, if there is one.
    pub fn first(clock: Clock) -> Option<Self> {
        axdriver::init_drivers().net.take_one().map(|device| Self { device, clock })
    }
}

impl Platform for Net {
    fn address(&self) -> [u8; 6] {
        self.device.mac_address().0
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn receive(&mut self, frame: &mut [u8; FRAME_LENGTH]) -> Option<usize> {
        let buffer = self.device.receive().ok()?;
        let packet = buffer.packet();
        let length = packet.len().min(FRAME_LENGTH);
        frame[..length].copy_from_slice(&packet[..length]);
        self.device.recycle_rx_buffer(buffer).ok()?;
        Some(length)
    }

    /// Waits for the device to have room, like the driver's own benchmark; nothing else would free it.
    fn send(&mut self, frame: &[u8]) {
        while self.device.recycle_tx_buffers().is_ok() && !self.device.can_transmit() {
            core::hint::spin_loop();
        }
        if let Ok(mut buffer) = self.device.alloc_tx_buffer(frame.len()) {
            buffer.packet_mut().copy_from_slice(frame);
            let _ = self.device.transmit(buffer); // a frame that is lost is sent again by TCP
        }
    }

    /// Returns at once: ArceOS's driver has no interrupts, its own network stack polls as well.
    fn wait(&mut self, _until_nanoseconds: u64) {
        core::hint::spin_loop();
    }
}
