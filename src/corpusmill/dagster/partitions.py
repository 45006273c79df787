"""Partitions of an asset, and what each of them means for the source, the sink and the prompts of a job.

An asset has one dimension or two, as Dagster has it. A dimension may narrow the source to the rows whose column has
the key (or lies in the key's window of time), it names one level of hive folders in the sink, and the whole job may
say `${PARTITION}` or `${PARTITION_<DIMENSION>}` wherever the key belongs: in a path, or as a translation's language.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from corpusmill.job import Job
    from corpusmill.tables import SourceSpec

Keys = dict[str, str]
"""The key of each dimension; empty without partitions."""

_MOST_DIMENSIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of an asset's partitions.

    `column` is the source's column that is narrowed to the key; None leaves the source as the job has it. `hive` is
    the key's name in the sink's folders; None takes the name of the dimension, and "" makes no folder, for a job
    whose sink names the key itself.
    """

    definition: dg.PartitionsDefinition[str]
    column: str | None = None
    hive: str | None = None


def partitions_definition(dimensions: Mapping[str, Dimension]) -> dg.PartitionsDefinition[str] | None:
    """Give Dagster's definition for the dimensions; raise `UsageError` where it has none."""
    for name in dimensions:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"the dimension {name!r} of the partitions must be a word of letters and digits")
    if not dimensions:
        return None
    if len(dimensions) == 1:
        return next(iter(dimensions.values())).definition
    if len(dimensions) > _MOST_DIMENSIONS:
        raise UsageError(
            f"the partitions have {len(dimensions)} dimensions ({', '.join(dimensions)}); Dagster allows two"
        )
    return dg.MultiPartitionsDefinition({name: each.definition for name, each in dimensions.items()})


def keys_of(dimensions: Mapping[str, Dimension], partition: str) -> Keys:
    """Split a partition's key into those of its dimensions."""
    if len(dimensions) == 1:
        return {next(iter(dimensions)): str(partition)}
    definition = partitions_definition(dimensions)
    if not isinstance(partition, dg.MultiPartitionKey):
        assert isinstance(definition, dg.MultiPartitionsDefinition)
        partition = definition.get_partition_key_from_str(partition)
    assert isinstance(partition, dg.MultiPartitionKey)
    return {name: partition.keys_by_dimension[name] for name in dimensions}


def first_keys(dimensions: Mapping[str, Dimension]) -> Keys | None:
    """Give the keys of some partition, by which the job can be checked beforehand; None when there is none yet."""
    keys = {}
    for name, dimension in dimensions.items():
        definition = dimension.definition
        if isinstance(definition, dg.DynamicPartitionsDefinition):
            return None
        first = (
            definition.get_first_partition_key()
            if isinstance(definition, dg.TimeWindowPartitionsDefinition)
            else next(iter(definition.get_partition_keys()), None)
        )
        if first is None:
            return None
        keys[name] = str(first)
    return keys


def variables(keys: Keys) -> dict[str, str]:
    """Give what a job may say of its partition: `PARTITION`, and `PARTITION_<DIMENSION>` for each dimension."""
    if not keys:
        return {}
    return {
        "PARTITION": "|".join(keys[name] for name in sorted(keys)),
        **{f"PARTITION_{name.upper()}": key for name, key in keys.items()},
    }


def narrowed(job: Job, dimensions: Mapping[str, Dimension], keys: Keys) -> Job:
    """Give the job of one partition: its rows of the source, its folder of the sink."""
    hive = {
        dimension.hive or name: keys[name] for name, dimension in dimensions.items() if dimension.hive != ""
    }
    sink = job.sink
    if hive:
        clash = set(hive) & set(sink.partition or {})
        if clash:
            raise UsageError(
                f"sink.partition and the asset's partitions both set {', '.join(sorted(clash))}; leave it out of sink"
            )
        sink = replace(sink, partition={**(sink.partition or {}), **hive})
    return replace(job, source=_narrowed_source(job.source, dimensions, keys), sink=sink)


def _narrowed_source(source: SourceSpec, dimensions: Mapping[str, Dimension], keys: Keys) -> SourceSpec:
    wanted = {name: dimension for name, dimension in dimensions.items() if dimension.column is not None}
    if not wanted:
        return source
    from corpusmill.prompts.columns import resolve_column
    from corpusmill.tables import open_source

    schema = open_source(replace(source, columns=None)).schema
    conditions = [list(condition) for condition in source.filter or ()]
    for name, dimension in wanted.items():
        assert dimension.column is not None
        type_ = resolve_column(schema, dimension.column)
        conditions += conditions_of(dimension, keys[name], type_)
    return replace(source, filter=conditions)


def conditions_of(dimension: Dimension, key: str, type_: pa.DataType) -> list[list[Any]]:
    """Give the filter that takes the rows of a key from the dimension's column, which is of the type `type_`.

    A column of texts holds the key itself, one of dates or moments lies in the key's window: its start inclusive,
    its end exclusive. Moments without a time zone are taken for those of the partitions' own time zone.
    """
    import pyarrow as pa

    column = dimension.column
    value = type_.value_type if isinstance(type_, pa.DictionaryType) else type_
    definition = dimension.definition
    windowed = pa.types.is_date(value) or pa.types.is_timestamp(value)
    if isinstance(definition, dg.TimeWindowPartitionsDefinition) and windowed:
        window = definition.time_window_for_partition_key(key)
        return [[column, ">=", _moment(window.start, value)], [column, "<", _moment(window.end, value)]]
    if pa.types.is_integer(value):
        try:
            return [[column, "=", int(key)]]
        except ValueError:
            raise UsageError(
                f"the partition {key!r} is no number, and the column {column!r} holds numbers"
            ) from None
    return [[column, "=", key]]


def _moment(moment: dt.datetime, type_: pa.DataType) -> Any:
    """Give an end of a window as a value that compares with a column of the type."""
    import pyarrow as pa

    if isinstance(type_, pa.TimestampType):
        return moment if type_.tz is not None else moment.replace(tzinfo=None)
    if moment.time() != dt.time(0):
        raise UsageError(
            f"the window of a partition begins or ends at {moment}, and the column holds whole days"
        )
    return moment.date()
