"""Pure: batches become requests, answers become outcomes, outcomes become columns."""
