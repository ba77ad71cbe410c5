"""What a run leaves: journal, job.csv, metrics, tables."""
