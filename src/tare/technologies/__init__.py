"""Technologies: one file each, with the technology's name."""

from tare.plugins.technology import Technology

CONTRACT = Technology
