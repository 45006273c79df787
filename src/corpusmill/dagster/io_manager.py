"""`ArrowParquetIOManager`: assets that are Arrow tables, kept as Parquet files.

An asset, or a partition of one, is one file. It is written under a temporary name, a batch at a time, and takes its
place when it is whole; a reader sees the old file or the new one. Names of partitions are escaped, so that each has
its own file whatever its key contains, and the key can be read back from the name.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, get_args, get_origin
from urllib.parse import quote

import dagster as dg
from pydantic import Field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyarrow import dataset as pads

    from corpusmill.tables.storage import Place

COLUMNS = "columns"
"""The metadata of an input that narrows it to some columns: `AssetIn(metadata={"columns": ["id", "text"]})`."""


class ArrowParquetIOManager(dg.ConfigurableIOManager):
    """Keep Arrow tables as Parquet files below `base`, a folder or a URL (s3://, gs://).

    Takes and gives `pyarrow.Table`, `pyarrow.RecordBatchReader` and `pyarrow.dataset.Dataset`, as the annotation of
    the input says (a Table without one). Several partitions are given as one, in the order of their keys, or by key
    to an input that is annotated as a dict. A reader and a dataset are never held in memory as a whole.
    """

    base: str = Field(description="the folder or URL below which assets are kept")
    compression: str = Field(
        default="zstd", description="of the columns: zstd, snappy, gzip, brotli, lz4 or none"
    )

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an output whole, or not at all."""
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else []
        if isinstance(obj, dict) and set(obj) == set(partitions):
            outputs: list[tuple[str | None, Any]] = [(key, obj[key]) for key in partitions]
        elif len(partitions) > 1:
            raise dg.Failure(
                description=f"{len(partitions)} partitions are made in this run, and the output is not a dict of them; "
                "give one, or make one partition a run (BackfillPolicy.multi_run(1))",
                allow_retries=False,
            )
        else:
            outputs = [(partitions[0] if partitions else None, obj)]
        for key, value in outputs:
            schema, rows, size = write_whole(
                self._place(context.asset_key, key), value, compression=self.compression
            )
            if len(outputs) > 1:
                continue
            context.add_output_metadata(
                {
                    "dagster/uri": self.path_of(context.asset_key, key),
                    "dagster/partition_row_count" if partitions else "dagster/row_count": rows,
                    "dagster/column_schema": dg.TableSchema(
                        columns=[dg.TableColumn(name=field.name, type=str(field.type)) for field in schema]
                    ),
                    "corpusmill/bytes": size,
                }
            )

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an input, narrowed to its columns."""
        wanted: Any = context.dagster_type.typing_type
        partitions = list(context.asset_partition_keys) if context.has_asset_partitions else []
        columns = (context.definition_metadata or {}).get(COLUMNS)
        if get_origin(wanted) is dict:
            kind = get_args(wanted)[1]
            return {
                str(key): as_kind([self._place(context.asset_key, key)], kind, columns) for key in partitions
            }
        keys: list[str | None] = [*partitions] if context.has_asset_partitions else [None]
        return as_kind([self._place(context.asset_key, key) for key in keys], wanted, columns)

    def path_of(self, asset: dg.AssetKey, partition: str | None = None) -> str:
        """Give the path or URL of an asset or of a partition of it, as another tool would open it."""
        return self._place(asset, partition).address

    def _place(self, asset: dg.AssetKey, partition: str | None) -> Place:
        from corpusmill.tables.storage import place_of

        place = place_of(self.base)
        names = [file_name(part) for part in asset.path]
        if isinstance(partition, dg.MultiPartitionKey):
            by_dimension = partition.keys_by_dimension
            names += [file_name(by_dimension[name]) for name in sorted(by_dimension)]
        elif partition is not None:
            names.append(file_name(partition))
        for name in names[:-1]:
            place /= name
        return place / f"{names[-1]}.parquet"


def file_name(key: str) -> str:
    """Give the name of a file or folder that stands for a key, and for no other; `urllib.parse.unquote` reads it."""
    escaped = quote(key, safe=" ,+@")
    if not escaped or escaped[0] in "._":
        # Readers pass over such names, and two of them mean other folders.
        return f"%{ord(escaped[0]):02X}{escaped[1:]}" if escaped else "%00"
    return escaped


def write_whole(place: Place, obj: Any, *, compression: str) -> tuple[pa.Schema, int, int]:
    """Write a table, reader, batch or dataset to a place; give its schema, rows and size in bytes."""
    from pyarrow import parquet as pq  # noqa: TID251 - assets that no run of ours has written are kept here

    from corpusmill.errors import SinkError
    from corpusmill.tables import check_storable
    from corpusmill.tables.storage import failures_as, sync_file

    schema, batches = _streamed(obj)
    check_storable(schema)
    rows = 0
    staged = place.beside(f".{place.name}.{uuid.uuid4().hex[:12]}")
    codec: Any = compression
    with failures_as(SinkError, "cannot write", place):
        place.parent.make_folder()
        try:
            with (
                staged.filesystem.open_output_stream(staged.path) as stream,
                pq.ParquetWriter(stream, schema, compression=codec) as writer,
            ):
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_batch(batch)
            if staged.local:
                sync_file(staged.path)
            size = staged.info().size
            staged.move_to(place)
        except BaseException:
            staged.delete()
            raise
    return schema, rows, size or 0


def _streamed(obj: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    import pyarrow as pa
    from pyarrow import dataset as pads

    if isinstance(obj, pa.Table):
        return obj.schema, iter(obj.to_batches())
    if isinstance(obj, pa.RecordBatchReader):
        return obj.schema, iter(obj)
    if isinstance(obj, pa.RecordBatch):
        return obj.schema, iter([obj])
    if isinstance(obj, pads.Dataset):
        return obj.schema, iter(obj.scanner(batch_readahead=2, fragment_readahead=1).to_batches())
    raise dg.Failure(
        description=f"the output is a {type(obj).__name__}; it must be a pyarrow Table, RecordBatchReader, RecordBatch "
        "or Dataset",
        allow_retries=False,
    )


def as_kind(places: Sequence[Place], kind: Any, columns: Sequence[str] | None) -> Any:
    """Read files as one Table, RecordBatchReader or Dataset."""
    import pyarrow as pa
    from pyarrow import dataset as pads

    from corpusmill.errors import SourceError
    from corpusmill.tables.storage import failures_as

    if not places:
        raise dg.Failure(description="the input has no partition", allow_retries=False)
    missing = [place for place in places if not place.is_file()]
    if missing:
        raise SourceError(
            f"{missing[0].shown} does not exist"
            + (f", nor do {len(missing) - 1} others of {len(places)}" if len(missing) > 1 else "")
            + "; materialise it first"
        )
    with failures_as(SourceError, "cannot read", places[0]):
        dataset = _opened(places, columns)
        if kind is pa.RecordBatchReader:
            return dataset.scanner(batch_readahead=2, fragment_readahead=1).to_reader()
        if isinstance(kind, type) and issubclass(kind, pads.Dataset):
            return dataset
        return dataset.to_table()


def _opened(places: Sequence[Place], columns: Sequence[str] | None) -> pads.Dataset:
    import pyarrow as pa
    from pyarrow import dataset as pads

    from corpusmill.errors import SourceError

    filesystem = places[0].filesystem
    files = [place.path for place in places]
    dataset = pads.dataset(files, filesystem=filesystem, format="parquet", exclude_invalid_files=False)
    if columns is None:
        return dataset
    unknown = [name for name in columns if name not in dataset.schema.names]
    if unknown:
        raise SourceError(
            f"{places[0].shown} has no column {unknown[0]!r}; it has {', '.join(dataset.schema.names)}"
        )
    narrow = pa.schema([dataset.schema.field(name) for name in columns])
    return pads.dataset(files, filesystem=filesystem, format="parquet", schema=narrow)
