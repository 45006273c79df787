"""The job of an asset: written once, made for each partition, with what it takes from resources.

At definition time a job is only looked at: variables of the environment may be missing there, keys are not needed,
and a dynamic partition may have no key yet. What cannot be made then is made, and refused if wrong, in the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corpusmill.dagster.partitions import Dimension, Keys, first_keys, narrowed, variables
from corpusmill.errors import CorpusmillError, JobError

if TYPE_CHECKING:
    from corpusmill.endpoints import Endpoint
    from corpusmill.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """What an asset's jobs are made from.

    `job` is the path of a job file, the content of one, a `Job`, or a function from the keys of a partition (by
    dimension) to a `Job`. The names of resources take the place of what the job says of endpoint, store and limits;
    `endpoint_model` is what the endpoint's resource is asked for.
    """

    job: str | Path | Mapping[str, Any] | Job | Callable[[Keys], Job]
    dimensions: Mapping[str, Dimension] = field(default_factory=dict)
    endpoint_resource: str | None = None
    endpoint_model: str | None = None
    store_resource: str | None = None
    limits_resource: str | None = None

    @property
    def resource_keys(self) -> set[str]:
        """The resources that a run needs."""
        names = (self.endpoint_resource, self.store_resource, self.limits_resource)
        return {name for name in names if name is not None}

    def job_for(self, keys: Keys, resources: object) -> Job:
        """Give the job that a run carries out; raise `UsageError` where there is none."""
        job = self._read(keys, {**os.environ, **variables(keys)})
        if keys:
            job = narrowed(job, self.dimensions, keys)
        if self.endpoint_resource is not None:
            job = replace(job, endpoint=self.endpoint_for(keys, resources))
        if self.store_resource is not None:
            store = getattr(resources, self.store_resource)
            job = replace(job, store=store.url, mode=store.mode)
        if self.limits_resource is not None:
            job = replace(job, limits=getattr(resources, self.limits_resource).limits())
        return job

    def endpoint_for(self, keys: Keys, resources: object) -> Endpoint:
        """Give who is asked in a partition, without a look at the source."""
        if self.endpoint_resource is not None:
            endpoint: Endpoint = getattr(resources, self.endpoint_resource).endpoint(self.endpoint_model)
            return endpoint
        return self._read(keys, {**os.environ, **variables(keys)}).endpoint

    def specimen(self) -> Job | None:
        """Give the job of some partition, its source and sink as written; None when it takes a run to know.

        Raises:
            UsageError: the job is wrong whatever the environment holds.
        """
        keys = first_keys(self.dimensions)
        if keys is None:
            return None
        environment = Lenient({**os.environ, **variables(keys)})
        try:
            return self._read(keys, environment)
        except CorpusmillError:
            if environment.missing:
                return None
            raise

    def _read(self, keys: Keys, environment: Mapping[str, str]) -> Job:
        from corpusmill.job import Job, job_of, load_job

        job = self.job
        if isinstance(job, Job):
            return job
        if isinstance(job, str | Path):
            return load_job(job, environment=environment)
        if isinstance(job, Mapping):
            values = dict(job)
            if self.endpoint_resource is not None:
                if "endpoint" in values:
                    raise JobError(
                        f"the job names an endpoint, and so does endpoint_resource ({self.endpoint_resource!r}); "
                        "leave one of them out"
                    )
                values["endpoint"] = stand_in(self.endpoint_model)
            return job_of(values, environment=environment)
        return job(keys)


def stand_in(model: str | None) -> dict[str, Any]:
    """Give what a job says of an endpoint that a resource is: it takes its place before anything is asked."""
    return {"openai_compatible": {"base_url": "http://resource.invalid", "model": model or "any"}}


class Lenient(dict[str, str]):
    """An environment in which a variable that is not set stands for itself, and is remembered."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.missing: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Give the variable, or the reference to it."""
        del default
        if name not in self:
            self.missing.add(name)
            return f"${{{name}}}"
        return self[name]
