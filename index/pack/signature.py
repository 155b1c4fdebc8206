"""Signatures of packs: Ed25519 over a pack's SHA-256, in a small JSON file beside it (``NAME.pack.sig``).

The public keys that are believed come with Toolscout (``keys.txt``, one hex key a line); a team that builds packs of
its own names its key in the setting ``pack_keys``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection
from pathlib import Path

from toolscout.errors import BadInput, NotAllowed
from toolscout.files import replace_file

KEYS = Path(__file__).with_name("keys.txt")
_MOST_BYTES = 4096


def signature_file(pack: Path) -> Path:
    """Where a pack's signature lies."""
    return pack.with_name(pack.name + ".sig")


def make_key(path: Path) -> str:
    """Write a new private key, readable for its owner alone; its public key (hex).

    Raises NotAllowed where there is a file already: a key that is lost signs nothing any more.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if path.exists():
        raise NotAllowed(f"There is a file {path} already.", "Name another place for the key.")
    key = Ed25519PrivateKey.generate()
    replace_file(path, key.private_bytes_raw().hex() + "\n", mode=0o600)
    return key.public_key().public_bytes_raw().hex()


def sign(pack: Path, key_file: Path) -> str:
    """Sign a pack; the public key (hex). Raises BadInput for a file that holds no key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(key_file.read_text("ascii").strip()))
    except (OSError, ValueError) as error:
        raise BadInput(f"{key_file} holds no signing key: {error}.", "Make one with --new-key.") from None
    digest = sha256(pack)
    signature = base64.b64encode(key.sign(_message(digest))).decode()
    public = key.public_key().public_bytes_raw().hex()
    told = {"pack": pack.name, "sha256": digest, "key": public, "signature": signature}
    replace_file(signature_file(pack), json.dumps(told, indent=1) + "\n")
    return public


def check(pack: Path, signature: Path, more_keys: Collection[str] = ()) -> str:
    """Check a pack against its signature; its SHA-256.

    Raises NotAllowed where it is not signed, by a key that is not believed, or was changed since.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    hint = "Get it again from where it is published."
    try:
        with signature.open("rb") as stream:
            told = json.loads(stream.read(_MOST_BYTES))
        key, digest, signed = str(told["key"]), str(told["sha256"]), base64.b64decode(told["signature"])
    except FileNotFoundError:
        raise NotAllowed(
            f"The built-in catalog {pack.name} is not signed.", f"{signature.name} belongs beside it."
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise NotAllowed(f"{signature.name} is no signature of a built-in catalog.", hint) from None
    if key not in believed(more_keys):
        raise NotAllowed(
            f"The built-in catalog {pack.name} is signed with a key that is not believed here ({key[:16]}...).",
            "If it is your team's, name the whole key in TOOLSCOUT_PACK_KEYS.",
        )
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signed, _message(digest))
    except (InvalidSignature, ValueError):
        raise NotAllowed(f"The signature of {pack.name} is wrong.", hint) from None
    found = sha256(pack)
    if found != digest:
        raise NotAllowed(f"The built-in catalog {pack.name} was changed or damaged after it was signed.", hint)
    return found


def believed(more: Collection[str] = ()) -> frozenset[str]:
    """Public keys (hex) whose signatures count."""
    lines = (line.partition("#")[0].strip() for line in KEYS.read_text("ascii").splitlines())
    return frozenset(line for line in [*lines, *more] if line)


def sha256(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _message(digest: str) -> bytes:
    return f"toolscout pack {digest}".encode()
