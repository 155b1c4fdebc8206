"""What only PostgreSQL can get wrong; the shared behaviour is in test_catalogue and test_transfer."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import sqlalchemy
from databases import Postgres

from toolscout.errors import StorageError
from toolscout.index.catalogue import Catalogue
from toolscout.index.database import Database
from toolscout.records import Server, Tool


def test_the_database_itself_would_order_by_language(postgres: Postgres) -> None:
    """Otherwise the order tested in test_catalogue would prove nothing."""
    database = Database(postgres.url())
    with database.reading() as connection:
        query = sqlalchemy.text("SELECT x FROM (VALUES ('B'), ('a'), ('_')) AS v(x) ORDER BY x")
        assert connection.execute(query).scalars().all() == ["_", "a", "B"]
    database.close()


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_usual_forms_of_the_url_work(postgres: Postgres, scheme: str) -> None:
    url = scheme + ":" + postgres.url().partition(":")[2]
    with Catalogue(url) as catalogue:
        catalogue.put_server(Server(server_id="s"))
        assert catalogue.revision == 1
        assert catalogue.stats()["database"]["kind"] == "postgresql"


def test_writers_that_touch_the_same_tools_in_other_orders_do_not_deadlock(postgres: Postgres) -> None:
    url = postgres.url()
    errors: list[BaseException] = []

    def write(backwards: bool) -> None:
        names = [f"t{i}" for i in range(40)]
        try:
            with Catalogue(url) as catalogue:
                for i in range(10):
                    tools = [
                        Tool(tool_id=f"s/{n}", server_id="s", name=n, description=f"{backwards}{i}")
                        for n in (names[::-1] if backwards else names)
                    ]
                    catalogue.put_server(Server(server_id="s"), tools, accept_changes=True)
        except BaseException as error:
            errors.append(error)

    with Catalogue(url):
        threads = [threading.Thread(target=write, args=(backwards,)) for backwards in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
    assert errors == []
    with Catalogue(url) as catalogue:
        assert catalogue.revision == 20


def test_a_connection_that_the_server_closed_is_replaced(postgres: Postgres) -> None:
    url = postgres.url()
    with Catalogue(url) as catalogue, Catalogue(url) as other:
        catalogue.put_server(Server(server_id="s"))
        with other._database.reading() as connection:
            ended = connection.execute(
                sqlalchemy.text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
            )
            assert ended.scalars().all()
        assert catalogue.get_server("s") is not None


def test_an_unreachable_server_is_one_clear_error_without_the_password() -> None:
    with pytest.raises(StorageError) as caught:
        Catalogue("postgresql+psycopg://me:hunter2@127.0.0.1:1/none?connect_timeout=5")
    assert "hunter2" not in caught.value.sentence()
    assert "TOOLSCOUT_DATABASE" in caught.value.hint


def test_a_malformed_url_is_one_clear_error() -> None:
    with pytest.raises(StorageError, match="malformed") as caught:
        Catalogue("postgresql://me:hunter2@host:port/x")
    assert "hunter2" not in caught.value.sentence()


def test_without_the_driver_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from toolscout.errors import StorageError\n"
        "from toolscout.index.catalogue import Catalogue\n"
        "try:\n    Catalogue('postgresql://localhost/x')\n"
        "except StorageError as error:\n    print(error.sentence())"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60).stdout
    assert "toolscout[postgres]" in out
