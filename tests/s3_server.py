"""A real S3 server on loopback, with one empty bucket, for a block."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyarrow import fs


def refusing(app: Callable[..., Iterable[bytes]], every: int) -> Callable[..., Iterable[bytes]]:
    """An application that asks for patience at one request of so many, as a busy store does."""
    requests = itertools.count(1)

    def answer(request: Any, start: Any) -> Iterable[bytes]:
        if next(requests) % every:
            return app(request, start)
        start("503 Slow Down", [("Content-Type", "application/xml")])
        return [b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"]

    return answer


def late(app: Callable[..., Iterable[bytes]], delay_s: float) -> Callable[..., Iterable[bytes]]:
    """An application that answers each request a while later, as a store that is far away."""

    def answer(request: Any, start: Any) -> Iterable[bytes]:
        time.sleep(delay_s)
        return app(request, start)

    return answer


@contextmanager
def s3_server(refuse_every: int | None = None, delay_s: float = 0.0) -> Iterator[str]:
    """Yields the URI of a folder, `%s` where its name goes; `conftest.py` sets credentials in the environment."""
    moto = pytest.importorskip("moto.moto_server.werkzeug_app")
    serving = pytest.importorskip("werkzeug.serving")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = moto.DomainDispatcherApplication(moto.create_backend_app)
    app = app if refuse_every is None else refusing(app, refuse_every)
    server = serving.make_server("127.0.0.1", 0, late(app, delay_s) if delay_s else app, True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{server.server_port}"
        filesystem, path = fs.FileSystem.from_uri(f"s3://bucket?{options}&allow_bucket_creation=true")
        filesystem.create_dir(path)
        filesystem.delete_dir_contents(path)  # servers of one process share their buckets
        yield f"s3://bucket/%s?{options}"
    finally:
        server.shutdown()
        thread.join()
