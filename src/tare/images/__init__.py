"""Images: guest file systems, their forms, and tare's server."""
