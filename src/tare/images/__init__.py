"""The guest file system, its forms, and tare's own server."""
