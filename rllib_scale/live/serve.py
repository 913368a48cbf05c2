"""Ray Serve's router, by a scheduler of this program: a deployment names it in its `request_router_config`.

    RequestRouterConfig(
        request_router_class="rllib_scale.live.serve:PolicyRouter",
        request_router_kwargs={"scheduler": "sticky", "demand": "my_app:demand"},
    )

`router_config("sticky", demand="my_app:demand")` is the same, and refuses what cannot be before anything is deployed.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from rllib_scale.config.cluster import MAX_PLACES
from rllib_scale.config.yaml_files import build_model
from rllib_scale.errors import UserError
from rllib_scale.live.holding import check_used, is_for_replicas
from rllib_scale.live.requests import Demand, Replica, RouterSettings, reported_replica
from rllib_scale.live.router_actor import LOOK_AGAIN_S
from rllib_scale.live.router_client import RouterClient, stats_of
from rllib_scale.live.shared_routing import routing_of
from rllib_scale.live.stats import Exporter, LiveStats, remembered

RETRY_S = 0.02
"""After this time a request is decided on again whose replica was full after all."""
MAX_WAITING = 10_000
"""Requests that are decided on together; more wait in Serve's own queue."""


def router_config(scheduler: str = "sticky", **settings: Any) -> RequestRouterConfig:
    """The `request_router_config` of a deployment, checked.

    Args:
        scheduler: a heuristic's name, the folder of an exported policy, or zoo:NAME.
        settings: further fields of `requests.RouterSettings`.

    Raises:
        UserError: there is no such scheduler, it does not fit, or a setting is none.
    """
    kwargs = {"scheduler": scheduler, **settings}
    checked = _settings(kwargs)
    routing_of(checked)
    _demand_of(checked)
    return RequestRouterConfig(request_router_class="rllib_scale.live.serve:PolicyRouter", request_router_kwargs=kwargs)


class PolicyRouter(RequestRouter):
    """Routes by a rule or an exported policy; a request waits where that names a busy replica.

    All handles and proxies of a deployment share one state, in an actor; see `router_client`. With wrong settings each
    request fails with the error.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """See `RequestRouter.initialize_state`. `kwargs`: fields of `requests.RouterSettings`."""
        self._wrong: UserError | None = None
        self._places: dict[int, asyncio.Future[str]] = {}  # of requests that wait
        self._sent: dict[int, PendingRequest] = {}  # that do not any more
        self._reported: dict[str, Replica] = {}  # as each describes itself
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.Task[None] | None = None
        self._showing: asyncio.Handle | None = None
        self._exporter: Exporter | None = None
        try:
            self._settings = _settings(kwargs)
            self._demand = _demand_of(self._settings)
            name = _name_of(self._deployment_id.app_name, self._deployment_id.name)
            self._routing = RouterClient(name, self._settings, self._event_loop, self._decide_soon)
            if self._settings.state == "handle":
                self._exporter = Exporter(name)
        except UserError as error:  # raised here, requests would wait without end
            self._wrong = error

    @property
    def max_num_routing_tasks(self) -> int:
        """See `RequestRouter.max_num_routing_tasks`: a request that waits for its replica must not block others."""
        return MAX_WAITING

    # ------------------------------------------------------------------ what Serve calls

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """See `RequestRouter.choose_replicas`: one replica, and that once the scheduler wants the request to start."""
        if pending_request is None or pending_request.future.done():
            return [candidate_replicas]
        # If Serve finds the replica full, the next round decides again and waits properly.
        pending_request.routing_context.should_backoff = False
        key = id(pending_request)  # calls that one request makes share its internal_request_id
        try:
            demand = self._demand_for(pending_request)
        except Exception as error:  # of the user's function, too: it is about this request
            if self._wrong is None:
                self._routing.reject()
            return self._refuse(pending_request, error)
        if key in self._sent:  # that replica was full after all, or is not known here yet
            self._forget(key, "again")
            await asyncio.sleep(RETRY_S)
        place = self._places[key] = self._event_loop.create_future()
        since = self._routing.clock() - (time.time() - pending_request.created_at)
        self._routing.arrive(key, demand, since)
        self._decide_soon()
        try:
            name = await place
            self._sent[key] = pending_request
        except Exception as error:
            return self._refuse(pending_request, error)
        finally:
            del self._places[key]
            if key not in self._sent:  # given up, perhaps just when its turn had come
                self._routing.leave(key, "dropped")
        return [[replica for replica in self._replicas_list if replica.replica_id.unique_id == name]]

    def _refuse(self, pending: PendingRequest, error: Exception) -> list[list[RunningReplica]]:
        self._remove_pending_request_from_indices(pending)
        if not pending.future.done():
            pending.future.set_exception(error)
        return [self._replicas_list]  # Serve checks the future before these

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """See `RequestRouter.on_request_completed`: its place is free."""
        for key, pending in self._sent.items():
            is_it = pending.metadata.internal_request_id == internal_request_id
            if is_it and self._routing.replica_of(key) == replica_id.unique_id:
                self._forget(key, "answered")
                break
        self._decide_soon()

    def decrement_queue_len_cache(self, replica_id: ReplicaID) -> None:
        """See `RequestRouter.decrement_queue_len_cache`."""
        super().decrement_queue_len_cache(replica_id)
        self._decide_soon()

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """See `RequestRouter.update_replicas`: waiting requests may start on new ones."""
        super().update_replicas(replicas)
        self._reported.clear()
        if self._wrong is None:
            self._routing.connect(bool(replicas))
        self._decide_soon()

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """See `RequestRouter.on_replica_actor_died`: what was kept there is gone."""
        super().on_replica_actor_died(replica_id)
        if self._wrong is None:
            self._routing.lost(replica_id.unique_id)
            self._decide_soon()

    # ------------------------------------------------------------------ rounds

    def _decide_soon(self) -> None:
        """Once all that happens now has happened."""
        if self._soon is None and self._places:
            self._soon = self._event_loop.call_soon(self._decide)

    def _show_soon(self) -> None:
        """Bring Ray's metrics up to date, no more often than they may be."""
        if self._exporter is not None and self._showing is None:
            wait = max(0.0, self._exporter.due_s - time.monotonic())
            self._showing = self._event_loop.call_later(wait, self._show)

    def _show(self) -> None:
        self._showing = None
        if self._exporter is not None:
            self._exporter.show(self._routing.stats())

    def _decide(self) -> None:
        self._soon = None
        self._show_soon()
        for key in [key for key, pending in self._sent.items() if pending.future.cancelled()]:
            self._forget(key, "dropped")  # given up on its way
        try:
            answers = self._round()
        except Exception as error:  # otherwise waiting requests never learn of the error
            for place in self._places.values():
                if not place.done():
                    place.set_exception(error)
            return
        for key, name, wrong in answers:
            waits = self._places.get(key)
            if waits is None or waits.done():
                self._routing.leave(key, "dropped")
            elif name is None:
                waits.set_exception(wrong)
            else:
                waits.set_result(name)
        if self._routing.decides and self._routing.waiting and (self._later is None or self._later.done()):
            self._later = self._event_loop.create_task(self._look_again())

    def _round(self) -> list[tuple[Any, str | None, Any]]:
        replicas = [self._described(replica) for replica in self._replicas_list]
        cached = self.replica_queue_len_cache
        queued = {r.replica_id.unique_id: cached.get(r.replica_id) or 0 for r in self._replicas_list}
        return self._routing.round(replicas, queued)

    def _described(self, replica: RunningReplica) -> Replica:
        """A replica as it describes itself.

        Raises:
            UserError: it reports an invalid value, or has more places than the scheduler can count.
        """
        name, places = replica.replica_id.unique_id, replica.max_ongoing_requests
        if name not in self._reported:
            if places > MAX_PLACES and not is_for_replicas(self._settings):
                raise UserError(f"replica {name}: max_ongoing_requests {places}; valid: at most {MAX_PLACES}")
            self._reported[name] = reported_replica(name, places, replica.routing_stats or {}, self._settings)
        return self._reported[name]

    async def _look_again(self) -> None:
        """Ends of other handles' requests are not reported: poll them."""
        await asyncio.sleep(LOOK_AGAIN_S)
        shared = self._routing.others_on()
        await self._probe_queue_lens([r for r in self._replicas_list if r.replica_id.unique_id in shared], 0)
        self._decide_soon()

    def _forget(self, key: int, how: str) -> None:
        """A request runs no more, or not where it was sent."""
        self._sent.pop(key, None)
        self._routing.leave(key, how)

    def _demand_for(self, pending: PendingRequest) -> Demand:
        """Demand of a request.

        Raises:
            UserError: the settings are wrong, `demand` returned no demand, or a field that the scheduler does not use.
        """
        if self._wrong is not None:
            raise self._wrong
        fields = dict(self._demand(*pending.args, **pending.kwargs))
        if pending.metadata.session_id:
            fields.setdefault("session", pending.metadata.session_id)
        demand = build_model(Demand, fields, "demand")
        check_used(demand, self._settings)
        return demand


def router_stats(handle: DeploymentHandle) -> LiveStats:
    """State of the routers of a deployment: of all handles, or with `state: handle` of those of this process.

    Raises:
        UserError: no router here has routed a request by a scheduler of this program.
    """
    name = _name_of(handle.app_name, handle.deployment_name)
    found, past = remembered(name)
    if not (found or past):
        raise UserError(f"deployment {name}: no router in this process has routed a request of it yet")
    return stats_of(found, past)


def _name_of(app: str, deployment: str) -> str:
    return f"{app}#{deployment}"


def _settings(kwargs: Mapping[str, Any]) -> RouterSettings:
    return build_model(RouterSettings, dict(kwargs), "request_router_kwargs")


def _demand_of(settings: RouterSettings) -> Callable[..., Mapping[str, Any]]:
    """The function that gives the demand of a request.

    Raises:
        UserError: it is neither a function that can be imported nor a demand that the scheduler uses.
    """
    given = settings.demand
    if not isinstance(given, str):
        demand = build_model(Demand, given or {}, "demand")
        check_used(demand, settings)
        fields = demand.model_dump(exclude_unset=True)
        return lambda *arguments, **keywords: fields
    module, _, name = given.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise UserError(f"demand {given!r}: must be module:function, importable wherever requests are routed") from None
    if not callable(found):
        raise UserError(f"demand {given!r}: must be a function")
    return found
