"""Technologies: one file each, with the technology's name."""

from tare.launch import Technology

CONTRACT = Technology
