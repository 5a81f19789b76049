"""What a virtualization technology weighs, compared with bare metal on your own machine."""

__version__ = "0.1.0"
