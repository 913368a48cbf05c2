"""Names that a config may give, and that there is something behind each."""

from rllib_scale.config.methods import DISPATCHERS, HEURISTICS, RULES
from rllib_scale.schedulers import rules


def test_heuristics_that_a_config_may_name_are_exactly_those_there_are() -> None:
    assert list(rules.RULES) == list(RULES)
    assert list(rules.DISPATCHERS) == list(DISPATCHERS)
    assert list(rules.SCHEDULERS) == list(HEURISTICS)
