"""Whether traces are wanted, by the setting and by OpenTelemetry's own variables; looked at without importing it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolscout.errors import BadInput
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.server.telling.tracing import Tracing

logger = logging.getLogger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_INSTALL = "Run: pip install 'toolscout[otel]'"


def wanted(settings: Settings, env: Mapping[str, str]) -> bool:
    """Whether spans are to be made: the setting ``traces``, else whether ``OTEL_*`` name a place for them."""
    exporter = env.get("OTEL_TRACES_EXPORTER", "").strip()
    if settings.traces is not None:
        return settings.traces
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    return exporter in ("otlp", "console") or any(env.get(name) for name in _ENDPOINTS)


def make_tracing(settings: Settings) -> Tracing | None:
    """Tracing where it is wanted.

    Raises:
        BadInput: the setting asks for it, and it cannot be had. Where only the environment does (it may be meant for
            others), a warning says so and there is none.
    """
    if not wanted(settings, os.environ):
        return None
    if trouble := _trouble(os.environ):
        if settings.traces:
            raise BadInput(*trouble)
        logger.warning("No traces: %s %s", *trouble)
        return None
    from toolscout.server.telling.tracing import Tracing

    return Tracing()


def _trouble(env: Mapping[str, str]) -> tuple[str, str] | None:
    import importlib.util

    protocol = next((env[name].strip() for name in _PROTOCOLS if env.get(name)), "http/protobuf")
    console = env.get("OTEL_TRACES_EXPORTER", "").strip() == "console"
    if not console and protocol != "http/protobuf":
        return (
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol} is not served, only http/protobuf.",
            "Unset it, and give the collector's HTTP address (usually port 4318).",
        )
    for name in ("opentelemetry.sdk.trace", *(() if console else ("opentelemetry.exporter.otlp.proto.http",))):
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return "OpenTelemetry's SDK is not installed.", _INSTALL
    return None
