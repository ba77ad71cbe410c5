"""Readers of traces, clusters and profiles; errors name file:line:column."""
