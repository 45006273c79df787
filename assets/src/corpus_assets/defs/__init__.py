"""The assets."""
