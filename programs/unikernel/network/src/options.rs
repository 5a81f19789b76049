//! The command line: `--ipv4=ADDRESS/LENGTH [--gateway=ADDRESS]`, or `--ipv4-gateway=ADDRESS`, as MirageOS calls it.

use smoltcp::wire::{Ipv4Address, Ipv4Cidr};

/// Network configuration of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its address, and the length of its network's prefix.
    pub ipv4: Ipv4Cidr,
    /// The router to all other addresses.
    pub gateway: Option<Ipv4Address>,
}

impl Options {
    /// Error message for an invalid command line.
    pub const USAGE: &str = "usage: micro --ipv4=ADDRESS/LENGTH [--gateway=ADDRESS]\n";

    /// Read a command line. Words that are not options are ignored: some loaders pass the image's path.
    pub fn parse(line: &str) -> Option<Self> {
        let (mut ipv4, mut gateway) = (None, None);
        for word in line.split_ascii_whitespace() {
            if let Some(value) = word.strip_prefix("--ipv4=") {
                let (address, length) = value.split_once('/')?;
                let length = length.parse().ok().filter(|length| (1..=32).contains(length))?;
                ipv4 = Some(Ipv4Cidr::new(address.parse().ok()?, length));
            } else if let Some(value) =
                ["--gateway=", "--ipv4-gateway="].iter().find_map(|name| word.strip_prefix(name))
            {
                gateway = Some(value.parse().ok()?);
            } else if word.starts_with('-') {
                return None;
            }
        }
        Some(Self { ipv4: ipv4?, gateway })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_gateway_are_read() {
        let options = Options::parse("/some/image --ipv4=198.18.0.10/24  --gateway=198.18.0.1").unwrap();
        assert_eq!(options.ipv4, Ipv4Cidr::new(Ipv4Address::new(198, 18, 0, 10), 24));
        assert_eq!(options.gateway, Some(Ipv4Address::new(198, 18, 0, 1)));
        assert_eq!(Options::parse("--ipv4=198.18.0.10/24").unwrap().gateway, None);
        assert_eq!(Options::parse("--ipv4=198.18.0.10/24 --ipv4-gateway=198.18.0.1"), Some(options));
    }

    #[test]
    fn other_command_lines_are_refused() {
        for line in [
            "",
            "--gateway=198.18.0.1",
            "--ipv4=198.18.0.10",
            "--ipv4=198.18.0.10/33",
            "--ipv4=198.18.0/24",
            "--ipv4=198.18.0.10/24 --gateway=nobody",
            "--ipv4=198.18.0.10/24 --verbose",
        ] {
            assert_eq!(Options::parse(line), None, "{line}");
        }
    }
}
