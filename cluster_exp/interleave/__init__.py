"""The interleaving model: cycle time, efficiency, orders, rates, grouping."""
