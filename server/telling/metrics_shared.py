"""Where several workers on one port put their numbers together. Nothing of prometheus_client is imported here: it looks
at the variable when it is."""

from __future__ import annotations

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
