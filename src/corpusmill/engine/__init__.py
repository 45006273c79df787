"""The machine behind `enrich`: one asynchronous implementation, and the door into it."""
