"""Several workers behind one port: uvicorn's supervisor, one listening socket, one engine in each process.

Every worker has its own upstream processes and search index (the index is memory-mapped: shared). What several
processes have to agree on lies in the home folder or the database: configuration, catalogue, audit log, the key of
request states, and which approvals are used up.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
from typing import TYPE_CHECKING

import uvicorn

from toolscout.errors import BadInput

if TYPE_CHECKING:
    from starlette.applications import Starlette

MOST = 64
_HOST = "TOOLSCOUT_WORKER_HOST"
_WORKERS = "TOOLSCOUT_WORKER_COUNT"
_HEALTH_SECONDS = 60
"""A worker that does not answer the supervisor for so long is replaced; importing and index building hold the
interpreter for seconds on a busy machine."""


def run_workers(host: str, port: int, workers: int) -> None:
    """Serve with so many processes until interrupted. One that dies is replaced.

    Raises BadInput: not a number of workers.
    """
    from toolscout.server.telling.metrics_shared import SHARED_FOLDER

    if not 1 <= workers <= MOST:
        raise BadInput(f"{workers} workers are too many or too few.", f"Give 1 to {MOST}; one for each core is usual.")
    os.environ[_HOST] = host
    os.environ[_WORKERS] = str(workers)
    folder = tempfile.mkdtemp(prefix="toolscout-metrics-")
    os.environ[SHARED_FOLDER] = folder
    from toolscout.server.web.http import bounds
    from toolscout.settings import load_settings

    try:
        uvicorn.run(
            "toolscout.server.web.workers:application",
            factory=True,
            host=host,
            port=port,
            workers=workers,
            log_level="warning",
            lifespan="on",
            **bounds(load_settings()),
            timeout_worker_healthcheck=_HEALTH_SECONDS,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def application() -> Starlette:
    """The application of one worker; uvicorn calls it in the worker's process."""
    from toolscout.server.engine import Engine
    from toolscout.server.limits import raise_file_limit
    from toolscout.server.telling.logs import configure_logging
    from toolscout.server.web.http import make_http_app
    from toolscout.settings import load_settings

    threading.Thread(target=_follow_parent, name="parent", daemon=True).start()
    settings = load_settings()
    if settings.share_upstreams is None:
        # Nothing that an upstream holds can be one client's here: its next call may go to another worker.
        settings = settings.model_copy(update={"share_upstreams": True})
    configure_logging(settings)
    raise_file_limit()
    engine = Engine(settings, serving=True, searches=searches_at_once(int(os.environ[_WORKERS])))
    return make_http_app(engine, settings, os.environ[_HOST])


def searches_at_once(workers: int) -> int:
    """In each worker, so that all together have a core each: of two workers on two cores with two each, the event
    loops got too little of the processor and calls waited as long as searches (1.4 s for .05, 500 clients)."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # Windows, macOS
        cores = os.cpu_count() or 1
    return max(1, min(2, cores // workers))


def _follow_parent() -> None:
    """End as by SIGTERM when the supervisor has gone: killed hard, it cannot say so, and the port would stay taken."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
