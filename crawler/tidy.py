"""Facts of records in one form: licences as SPDX identifiers where they are plain, homepages as web addresses."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from toolscout.records import Server

_PLAIN = {
    "mit": "MIT",
    "mitmit": "MIT",
    "x11mit": "MIT",
    "apache": "Apache-2.0",
    "apache2": "Apache-2.0",
    "apache20": "Apache-2.0",
    "apachesoftware": "Apache-2.0",
    "apachesoftware20": "Apache-2.0",
    "isc": "ISC",
    "bsd2clause": "BSD-2-Clause",
    "bsd3clause": "BSD-3-Clause",
    "newbsd": "BSD-3-Clause",
    "modifiedbsd": "BSD-3-Clause",
    "mpl20": "MPL-2.0",
    "mozillapublic20": "MPL-2.0",
    "mozillapublic20mpl20": "MPL-2.0",
    "gplv3": "GPL-3.0-only",
    "gpl30": "GPL-3.0-only",
    "gplv2": "GPL-2.0-only",
    "gpl20": "GPL-2.0-only",
    "agplv3": "AGPL-3.0-only",
    "agpl30": "AGPL-3.0-only",
    "lgplv3": "LGPL-3.0-only",
    "lgpl30": "LGPL-3.0-only",
    "unlicense": "Unlicense",
    "cc010": "CC0-1.0",
    "0bsd": "0BSD",
    "eupl12": "EUPL-1.2",
}
"""By what is left of a name without 'the', 'license' and 'version'."""
_FILLING = re.compile(r"\b(?:the|licen[sc]ed?|version)\b|\bv(?=\d)|[^a-z0-9]+")
_SHORT = re.compile(r"^(?:git\+)?(github|gitlab|bitbucket):([\w.-]+/[\w.-]+)$")
_SSH = re.compile(r"^(?:git\+)?(?:ssh://)?(?:[\w.-]+@)([\w.-]+\.[a-z]+)(?::\d+)?[:/](.+)$")
_HOSTS = {"github": "github.com", "gitlab": "gitlab.com", "bitbucket": "bitbucket.org"}
_WHOLE_TEXT = re.compile(r"^\s*(?:the )?(mit|isc) licen[sc]e\b.{0,40}\n.*permission", re.I | re.S)


def tidied(server: Server) -> Server:
    """The record with its licence and its homepage in one form."""
    return server.model_copy(update={"license": licence(server.license), "homepage": homepage(server.homepage)})


def licence(said: str | None) -> str | None:
    """An SPDX identifier where what is said is plainly one; otherwise what is said ("SEE LICENSE IN ...", expressions).

    A name without "only" or "or later" means "only": a licence gives no more than it says.
    """
    text = (said or "").strip()
    if match := _WHOLE_TEXT.match(text):
        return match[1].upper()
    if not text or text.upper() in ("NA", "N/A", "NONE", "NULL", "UNKNOWN", "UNDEFINED"):
        return None
    # 'UNLICENSED' is npm's word for no licence at all: not to be mistaken for the Unlicense.
    return text if text.upper() == "UNLICENSED" else _PLAIN.get(_FILLING.sub("", text.lower()), text)


def homepage(said: str | None) -> str | None:
    """A web address, made from a repository's where it is one for git alone; None for anything else."""
    text = (said or "").strip()
    if match := _SHORT.match(text):
        text = f"https://{_HOSTS[match[1]]}/{match[2]}"
    elif match := _SSH.match(text):
        text = f"https://{match[1]}/{match[2]}"
    elif text.startswith(("git://", "git+https://", "git+http://", "git+git://")):
        text = "https://" + text.split("://", 1)[1]
    try:
        parts = urlsplit(text)
        known = parts.scheme.lower() in ("http", "https") and "." in (parts.hostname or "") and not parts.password
    except ValueError:
        return None
    if not known or re.search(r"\s", text):
        return None
    return re.sub(r"\.git(?=$|#)", "", text)
