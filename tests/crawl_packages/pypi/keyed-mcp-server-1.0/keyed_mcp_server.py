import os

from mcp.runner import serve


def main():
    account = os.environ["LEDGER_ACCOUNT_ID"]
    serve("ledger", [f"book_{len(account) > 0}"])
