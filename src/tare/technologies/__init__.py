"""Technologies: one file each, named as the technology is."""

from tare.launch import Technology

CONTRACT = Technology
