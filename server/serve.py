"""``toolscout serve``: one function for each face, importing nothing heavy before it must."""

from __future__ import annotations


def run(http: str | None = None) -> None:
    """Serve over stdio, or over streamable HTTP when ``http`` is ``HOST:PORT``. Returns when the client leaves."""
    if http is None:
        from toolscout.server.stdio import run_stdio

        run_stdio()
        return
    from toolscout.server.http import run_http

    run_http(http)
