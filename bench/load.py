"""The load generator: a process of its own on a core of its own. A job comes on stdin, its outcome goes to stdout."""

from __future__ import annotations

import asyncio
import gc
import resource
import sys

import msgspec

from bench import cores
from bench.job import Job, Outcome
from bench.load_cross import load_cross
from bench.load_fanout import load_fanout
from bench.load_requests import load_requests
from bench.load_streams import load_streams
from bench.tally import Tally


async def run(job: Job) -> Outcome:
    """Do the job."""
    tally = Tally([job.pid, *(pid for _, pid in job.nodes)], database=job.database_pid, exact=job.exact)
    if job.kind == "stream":
        await load_streams(job, tally)
    elif job.kind == "fanout":
        await load_fanout(job, tally)
    elif job.kind == "cross":
        await load_cross(job, tally)
    else:
        await load_requests(job, tally)
    return tally.outcome()


def raise_file_limit() -> None:
    """Allow as many connections as the system does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Read the job, do it, write the outcome."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    cores.pin(cores.load_core())
    raise_file_limit()
    # A collection in the middle of a burst would look like a slow server.
    gc.disable()
    try:
        import uvloop
    except ImportError:
        outcome = asyncio.run(run(job))
    else:
        outcome = uvloop.run(run(job))
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


if __name__ == "__main__":
    main()
