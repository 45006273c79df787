"""The chat call: wire format, streams, verdicts, retries, limits. Nothing else here speaks HTTP."""
