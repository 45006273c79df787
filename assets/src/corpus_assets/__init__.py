"""A corpus and what a model makes of it, as Dagster assets."""
