"""A table enriched by many tasks at once."""
