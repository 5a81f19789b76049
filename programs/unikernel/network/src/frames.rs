//! Frames between a platform and smoltcp, one at a time.

use application::Service;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpEndpoint, IpProtocol, Ipv4Packet, TcpPacket};

/// The longest Ethernet frame, without its check sequence.
pub const FRAME_LENGTH: usize = 1514;

/// A system that exchanges Ethernet frames.
pub trait Platform {
    /// The interface's Ethernet address.
    fn address(&self) -> [u8; 6];
    /// The monotonic clock, in nanoseconds.
    fn now(&self) -> u64;
    /// Receive a frame and return its length, if there is one.
    fn receive(&mut self, frame: &mut [u8; FRAME_LENGTH]) -> Option<usize>;
    /// Send a frame.
    fn send(&mut self, frame: &[u8]);
    /// Wait for a frame, but not longer than until this time. Returning sooner does no harm.
    fn wait(&mut self, until_nanoseconds: u64);
}

/// The first segment of a client: its address, and the port that it connects to.
pub struct Greeting {
    pub remote: IpEndpoint,
    pub service: Service,
}

/// A platform, the last received frame, and a buffer for the next sent one.
pub struct Frames<P> {
    platform: P,
    received: [u8; FRAME_LENGTH],
    length: Option<usize>,
    outgoing: [u8; FRAME_LENGTH],
}

impl<P: Platform> Frames<P> {
    pub fn new(platform: P) -> Self {
        Self { platform, received: [0; FRAME_LENGTH], length: None, outgoing: [0; FRAME_LENGTH] }
    }

    pub fn now(&self) -> Instant {
        Instant::from_micros((self.platform.now() / 1000) as i64)
    }

    pub fn wait(&mut self, until: Instant) {
        self.platform.wait(until.total_micros() as u64 * 1000);
    }

    /// Receive a frame, if there is one.
    pub fn receive(&mut self) -> bool {
        self.length = self.platform.receive(&mut self.received);
        self.length.is_some()
    }

    /// The greeting in the frame that was received, if it is one.
    pub fn greeting(&self) -> Option<Greeting> {
        let frame = EthernetFrame::new_checked(&self.received[..self.length?]).ok()?;
        if frame.ethertype() != EthernetProtocol::Ipv4 {
            return None;
        }
        let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
        if packet.next_header() != IpProtocol::Tcp {
            return None;
        }
        let segment = TcpPacket::new_checked(packet.payload()).ok()?;
        if !segment.syn() || segment.ack() || segment.rst() {
            return None;
        }
        let service = Service::at(segment.dst_port())?;
        Some(Greeting { remote: IpEndpoint::new(packet.src_addr().into(), segment.src_port()), service })
    }
}

impl<P: Platform> Device for Frames<P> {
    type RxToken<'a>
        = Received<'a>
    where
        P: 'a;
    type TxToken<'a>
        = Outgoing<'a, P>
    where
        P: 'a;

    fn receive(&mut self, _now: Instant) -> Option<(Received<'_>, Outgoing<'_, P>)> {
        let received = Received(&self.received[..self.length.take()?]);
        Some((received, Outgoing { platform: &mut self.platform, room: &mut self.outgoing }))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Outgoing<'_, P>> {
        Some(Outgoing { platform: &mut self.platform, room: &mut self.outgoing })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_LENGTH;
        capabilities
    }
}

/// A frame that was received.
pub struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

/// A frame to send.
pub struct Outgoing<'a, P> {
    platform: &'a mut P,
    room: &'a mut [u8; FRAME_LENGTH],
}

impl<P: Platform> TxToken for Outgoing<'_, P> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let frame = &mut self.room[..length];
        let result = write(frame);
        self.platform.send(frame);
        result
    }
}
