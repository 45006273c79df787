"""How a process that is ours, because it runs a job, gets its memory: so that it gives back what it no longer needs."""

from __future__ import annotations

import contextlib
import ctypes
import os

import pyarrow as pa

LARGE_BYTES = 128 << 10
"""Bytes from which on a piece of memory goes back to the system when it is let go."""

_M_MMAP_THRESHOLD = -3  # malloc.h of the GNU C library


def spare_memory() -> None:
    """Have the whole process hold on to less, as far as the environment says nothing else and the platform can.

    Arrow's usual allocator keeps what one thread has filled and another one let go: 80 MB of a run over short rows.
    That of the GNU C library takes longer and longer texts for small ones, and keeps hundreds of megabytes in pieces.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
