"""The scheduler's core: state, admission, placement, reconcile. No clock, network, disk or process."""
