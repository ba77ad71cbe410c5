"""Scheduling policies: one file a family, one row each in the registry."""
