"""Who may reach a run over the network, and what for (docs/security.md)."""
