"""How many random cases a test has: a few of them by default, many where they are asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import pytest
from hypothesis import settings

Check = Callable[..., None]


def each_of(cases: Iterable[int], by_default: int = 40) -> Callable[[Check], Check]:
    """Make one test of a check whose first parameter is the case, which a traceback shows.

    Args:
        cases: what to check.
        by_default: so many of them, the first ones; the others are checked by a slow test.
    """
    listed = list(cases)
    parts = [pytest.param(listed[:by_default], id="first")]
    if listed[by_default:]:
        parts.append(pytest.param(listed[by_default:], id="rest", marks=pytest.mark.slow))

    def decorate(check: Check) -> Check:
        def test(cases: list[int], **fixtures: object) -> None:
            for case in cases:
                check(case, **fixtures)

        _, *others = inspect.signature(check).parameters.values()
        own = inspect.Parameter("cases", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        test.__signature__ = inspect.Signature([own, *others])  # type: ignore[attr-defined]
        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return pytest.mark.parametrize("cases", parts)(test)

    return decorate


def examples(by_default: int) -> settings:
    """So many examples of a slow property by default; those of `--hypothesis-profile=many` where that is chosen."""
    asked = settings().max_examples
    count = by_default if asked == settings.get_profile("suite").max_examples else asked
    return settings(max_examples=count)
