"""A cluster that breaks: the runtime's own state machines under a seeded schedule of faults."""
