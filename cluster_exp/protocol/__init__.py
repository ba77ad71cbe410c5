"""State machines of messages, without I/O: (message, now) in, messages and events out."""
