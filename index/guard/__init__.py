"""The offline scanner for poisoned tools. What it looks for and how well it does: docs/GUARD.md."""
