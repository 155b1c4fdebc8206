"""Entry point of the ``toolscout`` command."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from toolscout.cli import run

    run()


if __name__ == "__main__":
    main()
