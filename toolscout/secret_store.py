"""Where a person's secrets are kept: the operating system's keyring, and a file of the home where there is none.

The file, ``secrets.json``, is readable by its owner alone. It names every secret; the value stands in it only where the
keyring did not take it. That protects against other users of the machine and against copies of configuration files, not
against programs that run as the same user.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput, StorageError
from toolscout.files import locked, write_json

if TYPE_CHECKING:
    from toolscout.settings import Settings

FILE = "secrets.json"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class SecretStore(MutableMapping[str, str]):
    """The secrets of one home, by name.

    Args:
        home: Toolscout's folder.
        service: what they are kept under in the keyring.
    """

    def __init__(self, home: Path, service: str) -> None:
        self.path, self._service = home / FILE, service

    def __getitem__(self, name: str) -> str:
        if name not in self or (value := self.find(name)) is None:
            raise KeyError(name)
        return value

    def find(self, name: str) -> str | None:
        """A secret, also one that the person put into the keyring without Toolscout; None where there is none."""
        return self._read().get(name) or read_keyring(self._service, name)

    def keep(self, values: Mapping[str, str]) -> list[str]:
        """Keep values under names that have none yet; the names that have another one, which stays."""
        others = []
        for name, value in values.items():
            old = self.find(name)
            if old != value and (old is not None or name in self):  # a locked keyring gives none
                others.append(name)
            elif name not in self:
                self[name] = value
        return others

    def __setitem__(self, name: str, value: str) -> None:
        """Keep a secret. Raises BadInput for a name no reference can have, or no value; StorageError if neither place
        takes it."""
        if not _NAME.fullmatch(name):
            raise BadInput(f"{name!r} is no name of a secret.", "Use letters, digits and _, as in GITHUB_TOKEN.")
        if not value:
            raise BadInput(f"{name} has no value.")
        kept = _write_keyring(self._service, name, value)
        with locked(self.path):
            self._write({**self._read(), name: None if kept else value})

    def __delitem__(self, name: str) -> None:
        """Forget a secret. Raises StorageError where it may be in the keyring still: its name is kept then."""
        with locked(self.path):
            values = self._read()
            kept = values.pop(name) is None
            gone = _forget_keyring(self._service, name, kept=kept)
            self._write(values if gone else {**values, name: None})
        if not gone:
            raise StorageError(
                f"{name} could not be removed from the system's keyring.",
                f"Unlock it and try again, or remove '{name}' of '{self._service}' there.",
            )

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def place(self, name: str) -> str:
        """Where a secret is: ``keyring`` or ``file``. Raises KeyError for none of this name."""
        return "keyring" if self._read()[name] is None else "file"

    def _read(self) -> dict[str, str | None]:
        try:
            values = json.loads(self.path.read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise StorageError(f"{self.path} cannot be read: {error.strerror}.") from None
        except ValueError:
            values = None
        if not isinstance(values, dict) or not all(isinstance(v, (str, type(None))) for v in values.values()):
            raise StorageError(f"{self.path} is not what Toolscout wrote.", "Repair it, or move it away.")
        return values

    def _write(self, values: Mapping[str, str | None]) -> None:
        write_json(self.path, values, mode=0o600, force_mode=True)


def open_store(settings: Settings) -> SecretStore:
    """The secrets of an installation."""
    return SecretStore(settings.home, settings.keyring_service)


def known_values(settings: Settings) -> Mapping[str, str]:
    """What references such as ``${GITHUB_TOKEN}`` stand for: the environment, and below it the kept secrets."""
    return ChainMap(os.environ, open_store(settings))


def read_keyring(service: str, name: str) -> str | None:
    """A value from the operating system's keyring; None when it is absent or there is no keyring."""
    try:
        import keyring

        value: str | None = keyring.get_password(service, name)
    except Exception:  # backends raise whatever they like: locked, no D-Bus, not installed
        return None
    return value


def _write_keyring(service: str, name: str, value: str) -> bool:
    """Whether the keyring took a value, and gives it back."""
    try:
        import keyring

        keyring.set_password(service, name, value)
    except Exception:
        return False
    return read_keyring(service, name) == value


def _forget_keyring(service: str, name: str, *, kept: bool) -> bool:
    """Whether the keyring has a value no more; ``kept``: it had taken one, so that without a keyring it has it still.

    One that went to the file may be beside an older one, of a time when the keyring was not locked.
    """
    try:
        import keyring
        from keyring.errors import NoKeyringError
    except Exception:
        return not kept
    with contextlib.suppress(Exception):  # gone already, or out of reach: reading tells
        keyring.delete_password(service, name)
    try:
        return keyring.get_password(service, name) is None
    except NoKeyringError:
        return not kept
    except Exception:
        return False
