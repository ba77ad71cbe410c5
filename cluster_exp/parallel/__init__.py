"""Work that is spread over processes."""
