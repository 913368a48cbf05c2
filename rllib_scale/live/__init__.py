"""The same schedulers on real Ray: a backend of actors, a library for callables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rllib_scale.live.guard import Guard as Guard
    from rllib_scale.live.library import Cluster as Cluster
    from rllib_scale.live.library import TaskFuture as TaskFuture

__all__ = ["Cluster", "Guard", "TaskFuture"]


def __getattr__(name: str) -> Any:
    """The library, once it is used: the processes of the servers import this package, too, and need none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rllib_scale.live import library

    return getattr(library, name)
