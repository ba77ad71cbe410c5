"""The system's vocabulary: frozen records and protocols, without a clock, network, disk or process."""
