"""Entry point of the ``toolscout`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Plain ``toolscout serve`` skips it: a client that starts a server waits for this."""
    if sys.argv[1:] == ["serve"]:
        _serve()
        return
    try:
        from toolscout.cli import run
    except KeyboardInterrupt:  # so early that there is no command yet
        sys.exit(130)
    run()


def _serve() -> None:
    from toolscout.errors import ToolscoutError
    from toolscout.server.serve import run

    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)
    except ToolscoutError as error:
        from toolscout.commands.output import note

        note(f"toolscout: {error.sentence()}")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
