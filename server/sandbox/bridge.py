"""Inside a sandbox without network: carries connections to a local port into the socket of Toolscout's proxy.

Run as a script by a bare interpreter, so it imports nothing of Toolscout: ``bridge.py SOCKET PORT PROGRAM ARGS...``.
It starts listening, then becomes the program; a child of it does the carrying for as long as the program lives.
"""

import contextlib
import os
import socket
import sys
import threading


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as proxy:
        try:
            proxy.connect(path)
        except OSError:
            return
        back = threading.Thread(target=_carry, args=(proxy, client), daemon=True)
        back.start()
        _carry(client, proxy)
        back.join()


def main() -> None:
    """Listen, leave a child behind that carries, and become the program."""
    path, port, *argv = sys.argv[1:]
    listening = socket.create_server(("127.0.0.1", int(port)), backlog=128)
    if os.fork():
        listening.close()
        os.execvp(argv[0], argv)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    while True:
        client, _ = listening.accept()
        threading.Thread(target=_serve, args=(client, path), daemon=True).start()


if __name__ == "__main__":
    main()
