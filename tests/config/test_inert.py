"""Settings that cannot act: said exactly where a training ends before they begin."""

from hypothesis import given
from hypothesis import strategies as st

from rllib_scale.config import TrialConfig
from rllib_scale.config.inert import inert_settings
from rllib_scale.networks.srr import ramp


@given(epochs=st.integers(1, 40), start=st.integers(0, 40), weight=st.sampled_from([0.0, 0.1]))
def test_srr_is_said_to_have_no_effect_exactly_where_its_ramp_stays_at_0(
    epochs: int, start: int, weight: float
) -> None:
    srr = {"lambda_decorrelation": weight, "lambda_kl": 0, "ramp_start_epoch": start}
    trials = [TrialConfig.of("scale", seed=seed, algorithm={"epochs": epochs}, srr=srr) for seed in (1, 2)]
    said = inert_settings([*trials, TrialConfig.of("crossattn", seed=1, algorithm={"epochs": epochs})])
    acts = any(ramp(epoch, start, 50) > 0 for epoch in range(epochs))
    assert len(said) == (weight > 0 and not acts)
    for part in ("2 trainings of scale", "srr.lambda_kl", f"srr.ramp_start_epoch {start}", f"{epochs} epoch"):
        assert all(part in sentence for sentence in said)


def test_off_policy_trainings_that_end_within_the_warm_up_learn_nothing() -> None:
    def said(steps: int) -> list[str]:
        dqn = {"epochs": 2, "steps_per_epoch": 256, "warmup_steps": steps}
        return inert_settings([TrialConfig.of("dqn", seed=1, algorithm=dqn)])

    assert [len(said(steps)) for steps in (1, 508, 509, 512)] == [0, 0, 1, 1]
    assert "algorithm.warmup_steps 512" in said(512)[0]
