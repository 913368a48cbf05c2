"""A real S3 server on loopback, with one empty bucket, for a block."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyarrow import fs


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields the URI of a folder, `%s` where its name goes; sets credentials in the environment."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port=0)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = f"scheme=http&region=us-east-1&endpoint_override={host}:{port}"
        filesystem, path = fs.FileSystem.from_uri(f"s3://bucket?{options}&allow_bucket_creation=true")
        filesystem.create_dir(path)
        yield f"s3://bucket/%s?{options}"
    finally:
        server.stop()
