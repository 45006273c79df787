"""Job files: YAML 1.2 to the objects of the library."""

from corpusmill.job.job import Job, job_of, job_schema, load_job, parse_job

__all__ = ["Job", "job_of", "job_schema", "load_job", "parse_job"]
