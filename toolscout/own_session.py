"""Start bubblewrap without the two things of its starter's session that its namespaces do not cover.

Run as ``python -I -S own_session.py COMMAND ...``, and becomes that command:

- The session keyring (Kerberos tickets and the like) is replaced by an empty one.
- Abstract unix sockets of processes outside (display, session bus) cannot be connected to. Landlock does that from
  Linux 6.12 on; before, ``network = true`` leaves them within reach (docs/SANDBOX.md).
"""

import ctypes
import os
import stat
import struct
import sys
from pathlib import Path

_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}
_JOIN_SESSION_KEYRING = 1
_NO_NEW_PRIVILEGES = 38
_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_SCOPES_SINCE = 6
_ABSTRACT_UNIX_SOCKET = 1


def main(command: list[str]) -> None:
    """Leave the session, then become ``command``."""
    system = ctypes.CDLL(None, use_errno=True)
    if (keyctl := _KEYCTL.get(os.uname().machine)) is not None:
        system.syscall(keyctl, _JOIN_SESSION_KEYRING, None)  # where it is forbidden, it is so inside, too
    # Landlock wants no-new-privileges, under which a bubblewrap that is setuid could make no namespaces.
    setuid = any(word.endswith("/bwrap") and Path(word).stat().st_mode & stat.S_ISUID for word in command)
    if not setuid and system.syscall(_CREATE_RULESET, None, 0, 1) >= _SCOPES_SINCE:
        system.prctl(_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0)))
        rules = struct.pack("QQQ", 0, 0, _ABSTRACT_UNIX_SOCKET)
        ruleset = system.syscall(_CREATE_RULESET, rules, len(rules), 0)
        if ruleset < 0 or system.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            sys.exit("Landlock is there and refused to close abstract sockets.")
        os.close(ruleset)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
