"""Column lineage, made from the prompts."""
