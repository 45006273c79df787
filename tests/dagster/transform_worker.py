"""A run worker for assets that transform jobs fill: one child after the other, each killed where it is told to be.

Called with a job file, the folder of an instance, and steps of the form `asset` or `asset@point`; it prints as JSON how
each of them ended, 0 or minus the number of the signal. All is imported once, and each step is a fork of this process.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import dagster as dg  # noqa: E402

import corpusmill.dagster.execution  # noqa: E402 - so that no child has to
import corpusmill.dagster.transform_work  # noqa: E402, F401
from corpusmill import killpoints  # noqa: E402
from corpusmill.dagster import transform_assets  # noqa: E402
from corpusmill.dagster.transform_sensor import transform_of  # noqa: E402
from corpusmill.job import load_job  # noqa: E402
from corpusmill.transform.aws import Aws  # noqa: E402

# So that no child reads the descriptions of AWS's services or makes the tables of the instance.
Aws(transform_of(load_job(sys.argv[1]).endpoint)).close()
with dg.DagsterInstance.local_temp(sys.argv[2]) as instance:
    instance.get_runs(limit=1)

definitions = transform_assets("translated", sys.argv[1])
ends = []
for step in sys.argv[3:]:
    asset, _, point = step.partition("@")
    child = os.fork()
    if not child:
        killpoints._WANTED = point
        with dg.DagsterInstance.local_temp(sys.argv[2]) as instance:
            ended = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
                instance=instance, asset_selection=[dg.AssetKey(asset)], raise_on_error=False
            )
        os._exit(0 if ended.success else 1)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(ends))  # noqa: T201 - this is what the test reads
