"""How a process that is ours, because it runs a job, gets its memory: so that it gives back what it no longer needs."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

LARGE_BYTES = 128 << 10
"""Bytes from which on a piece of memory goes back to the system when it is let go."""

_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_M_MMAP_THRESHOLD = -3  # malloc.h of the GNU C library


def spare_memory() -> None:
    """Have the whole process hold on to less, as far as the environment says nothing else and the platform can.

    Arrow's usual allocator keeps what one thread has filled and another one let go: 80 MB of a run. That of the GNU C
    library takes longer and longer texts for small ones, and keeps hundreds of megabytes in pieces.

    Best called before Arrow is loaded, which is when Arrow looks into the environment: what is set later holds for
    what Python makes, and not for the buffers that Arrow itself reads files into and writes them from.
    """
    if _POOL not in os.environ:
        if "pyarrow" not in sys.modules:
            os.environ[_POOL] = "system"
        else:
            import pyarrow as pa

            pa.set_memory_pool(pa.system_memory_pool())
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
