"""The feature set `relative`: one waiting task and the servers, in units that are the same on any cluster.

Times are in tau (the execution of a mean task on a mean place), work, memory and descendants in their means over what
has arrived, as `adaptive-price` estimates them. A server that the task does not fit is an empty row. Compiled code in
`schedulers/asked_visits.py` writes it, from a `View` alone: in the simulator and on a live cluster alike.
"""

from __future__ import annotations

from rllib_scale.observation.feature_sets import Feature, FeatureSet

MOST_TAU = 5.0
"""Times and costs above this count as this: a server so much later than the best is not in question."""

RELATIVE = FeatureSet(
    name="relative",
    context=(
        Feature("size", "1", "log2(places / 16) / 3", 0.0, 0.4),
        Feature("load_6", "1", "offered load of the last 6 tau less 0.7, over 0.3", 0.0, 1.0),
        Feature("load_30", "1", "the same of the last 30 tau", 0.0, 1.0),
        Feature("queue", "1", "2 ln(1 + waiting tasks / places) - 0.6", 0.0, 0.8),
        Feature("ready_work", "1", "ln(1 + work of the waiting tasks over capacity and tau) - 0.7", 0.5, 0.8),
        Feature("work", "1", "the same of all unfinished tasks, less 2", 0.0, 0.8),
        Feature("idle_slow", "1", "2 x open share of the slowest servers of the mean memory - 0.6", 0.0, 0.7),
        Feature("idle_fast", "1", "the same of the fastest servers", -0.2, 0.7),
        Feature("queue_4", "1", "queue, averaged over 4 tau", 0.0, 0.7),
        Feature("work_4", "1", "work, averaged over 4 tau", 0.0, 0.7),
        Feature("tasks", "1", "1.5 ln(1 + unfinished tasks / places) - 1.5", 0.3, 0.8),
        Feature("revealed", "1", "1: workflows are revealed as they run", 0.5, 0.5),
    ),
    task=(
        Feature("demand", "1", "ln of its work over the mean", 0.0, 0.5),
        Feature("memory", "1", "ln of its memory over the mean", 0.0, 0.5),
        Feature("descendants", "1", "ln of the tasks that follow, itself included, over the mean", 0.0, 0.7),
        Feature("age", "1", "ln(1 + time since its workflow arrived / 2 tau)", 0.8, 0.6),
        Feature("waited", "1", "ln(1 + time since it became ready / tau)", 0.3, 0.4),
        Feature("behind", "1", "ln(1 + waiting tasks behind it / places)", 0.3, 0.4),
        Feature("fits", "1", "share of servers that have the memory for it", 0.8, 0.25),
        Feature("open", "1", "share of servers that could start it now", 0.3, 0.3),
    ),
    server=(
        Feature("capacity", "1", "speed over that of a mean place; 0 marks an empty row", 1.0, 0.7),
        Feature("speed", "1", "log2 of its speed over the slowest, over 2", 0.5, 0.5),
        Feature("memory", "1", "ln of its memory over that of a mean task", 1.0, 0.4),
        Feature("spare", "1", "its memory less the task's, over that of a mean task", 1.5, 1.0),
        Feature("lasts", "tau", "transfer and execution of the task there", 1.2, 1.0),
        Feature("ahead", "tau", "until it could start the task, earlier ones of this round included", 0.7, 0.9),
        Feature("busy", "1", "1: the task would have to wait for it", 0.6, 0.5),
        Feature("free", "1", "share of its places that are free", 0.3, 0.45),
        Feature("finish", "tau", "ahead + lasts, less the least of all servers", 1.2, 1.2),
        Feature("price", "1", "its price over the weight of the task", 0.4, 0.8),
        Feature("cost", "tau", "cost by the rule over the weight of the task, less the least", 1.5, 1.3),
    ),
)
"""The rule is `adaptive-price`; without prices it is 2 ahead + lasts, and `price` is 0."""
