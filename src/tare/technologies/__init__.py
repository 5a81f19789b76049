"""Technologies: one file each, with the technology's name."""

from tare.contracts.technologies import Technology

CONTRACT = Technology
