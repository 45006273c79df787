"""Sources and sinks: tables in, a dataset out that is all there or not there.

Nothing here knows of HTTP or of the store, and of prompts only how they name a column.
"""

from corpusmill.tables.manifest import Manifest
from corpusmill.tables.parts import PartWriter
from corpusmill.tables.reading import read
from corpusmill.tables.sink import Sink, SinkLike, SinkSpec, open_sink
from corpusmill.tables.source import Chunk, Source, SourceLike, SourceSpec, open_source
from corpusmill.tables.storable import changed_types, check_storable
from corpusmill.tables.writing import Writing

__all__ = [
    "Chunk",
    "Manifest",
    "PartWriter",
    "Sink",
    "SinkLike",
    "SinkSpec",
    "Source",
    "SourceLike",
    "SourceSpec",
    "Writing",
    "changed_types",
    "check_storable",
    "open_sink",
    "open_source",
    "read",
]
