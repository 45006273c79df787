"""What the YAML files of this folder may name in `{{ }}`."""

import dagster as dg

from corpus_assets.places import folder


@dg.template_var
def tables() -> str:
    """The folder of all tables."""
    return str(folder())
