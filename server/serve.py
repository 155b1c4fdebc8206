"""``toolscout serve``: one function for each face, importing nothing heavy before it must."""

from __future__ import annotations


def run(http: str | None = None, workers: int = 1) -> None:
    """Serve over stdio, or over streamable HTTP when ``http`` is ``HOST:PORT``, there with so many processes.

    Returns when the client leaves. Raises BadInput and NotAllowed where it cannot serve so.
    """
    if http is None and workers != 1:
        from toolscout.errors import BadInput

        raise BadInput("--workers needs --http: over stdio there is one client.", "Add --http 127.0.0.1:8080.")
    if http is None:
        from toolscout.server.stdio import run_stdio

        run_stdio()
        return
    from toolscout.server.web.http import run_http

    run_http(http, workers)
