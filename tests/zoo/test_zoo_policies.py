"""The zoo: its cards say what the committed rows say, and its names stand wherever the folder of a policy may."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from rllib_scale_analysis import load

from rllib_scale import zoo
from rllib_scale.cli import main, sweeps
from rllib_scale.config import TrialConfig
from rllib_scale.config.plan import Plan
from rllib_scale.errors import UserError
from rllib_scale.evaluation.play import play
from rllib_scale.evaluation.replay import Replay
from rllib_scale.loading import sweep_from
from rllib_scale.policies.policy import DESCRIPTION, TENSORS, initial_network, load_policy, policy_files
from rllib_scale.results import dataset
from rllib_scale.results.storage import Location
from rllib_scale.sweeps.planning import make_plan
from sweep_runs import named
from zoo.cards import ROOT, own_rows, results

PACKAGE = ROOT / "rllib_scale"
CARDS = {name: zoo.card(name) for name in zoo.names()}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


# ---------------------------------------------------------------------- cards


@pytest.mark.slow
@pytest.mark.parametrize("name", CARDS)
def test_the_results_on_a_card_are_those_of_the_rows_it_names(name: str) -> None:
    assert CARDS[name]["results"] == results(CARDS[name])


@pytest.mark.parametrize("name", CARDS)
def test_a_policy_is_the_one_beside_the_rows(name: str) -> None:
    """The files of both are the same, and say what the card says."""
    card, files = CARDS[name], policy_files(f"zoo:{name}")
    assert files == policy_files(ROOT / card["policy"])
    description = json.loads(files[DESCRIPTION])
    assert [description[key] for key in ("method", "seed", "epochs")] == [card[k] for k in ("method", "seed", "epochs")]
    assert (ROOT / card["page"]).is_file()


@pytest.mark.parametrize("name", CARDS)
def test_the_command_on_a_card_trains_that_policy(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command would run holds a training with every setting of the policy's; its sessions are not here."""
    asked: list[Plan] = []
    monkeypatch.setattr(sweeps, "_run", lambda plan, *_, **__: asked.append(plan))
    sessions = tmp_path / "sessions.jsonl"
    sessions.write_text(json.dumps({"id": "a", "requests": [{"t": 0.0, "in": 10, "out": 5}]}) + "\n")
    program, *arguments = shlex.split(CARDS[name]["command"].replace("SESSIONS", str(sessions)))
    assert program == "rllib-scale"
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    policy = load_policy(f"zoo:{name}").trial
    if policy.env.on_replicas:
        service = asked[0].trials[0].config.env.service
        assert service.trace
        env = policy.env.model_copy(update={"service": policy.env.service.model_copy(update={"trace": service.trace})})
        policy = policy.model_copy(update={"env": env})
    (same,) = [trial.config for trial in asked[0].trials if trial.config == policy]
    assert same.trial_id == policy.trial_id


def test_the_zoo_is_small_and_holds_nothing_else() -> None:
    files = [path for path in (PACKAGE / "zoo").rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    data = [str(path.relative_to(PACKAGE / "zoo")) for path in files]
    assert sorted(data) == sorted(f"{name}/{file}" for name in CARDS for file in (zoo.CARD, DESCRIPTION, TENSORS))


@pytest.mark.slow
def test_the_shipped_seed_is_the_one_that_validation_prefers() -> None:
    weights = {"response_censored_s": 0.8, "jct_mean_s": 0.1, "jct_p95_s": 0.1}
    keys = ["test_servers", "scenario", "episode"]
    scores = []
    for name in ("steady", "servers_128", "more_servers"):
        rows = load(ROOT / "analysis" / "studies" / "beyond" / name).episodes
        base = rows[rows["method"] == "fastest-idle"].set_index(keys)
        shipped = rows.loc[rows["scheduler"] == load_policy("zoo:context-price").trial.trial_id, "variant"]
        own = rows[rows["variant"].isin(shipped)].set_index([*keys, "train_seed"])
        ratios = np.log(own[list(weights)] / base[list(weights)].reindex(own.index.droplevel("train_seed")).to_numpy())
        scores.append(ratios.mul(weights).sum(axis=1).groupby(["train_seed", "test_servers", "scenario"]).mean())
    every = pd.concat(scores)
    for rows in (every, every[every.index.get_level_values("test_servers") == 128]):
        assert rows.groupby("train_seed").mean().idxmin() == load_policy("zoo:context-price").trial.seed


# ---------------------------------------------------------------------- command line


def test_zoo_lists_its_policies_and_prints_a_card() -> None:
    listed = json.loads(invoke("zoo", "--json").stdout)
    assert [row["name"] for row in listed] == [f"zoo:{name}" for name in CARDS]
    assert all(f"zoo:{name}" in invoke("zoo").stdout for name in CARDS)
    assert json.loads(invoke("zoo", "scale", "--json").stdout) == CARDS["scale"]
    shown = invoke("zoo", "zoo:context-price").stdout
    card = CARDS["context-price"]
    assert card["command"] in shown
    assert all(f"{row['percent'][0]:+.1f} [" in shown for row in card["results"])


def test_evaluate_plays_a_name_as_it_plays_the_folder(tmp_path: Path) -> None:
    frames, places = [], ("zoo:scale", ROOT / CARDS["scale"]["policy"])
    for place in places:
        output = tmp_path / "rows.csv"
        result = invoke("evaluate", place, "--scales", 16, "--episodes", 2, "--output", output)
        assert result.exit_code == 0, result.output
        frames.append(pd.read_csv(output))
    assert [set(frame.pop("method")) for frame in frames] == [{str(place)} for place in places]
    pd.testing.assert_frame_equal(*frames)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["context-price", "context-price-response"])
def test_a_policy_plays_the_published_rows_again(name: str) -> None:
    """Those of the reproduction are played again by tests/evaluation/test_reproduction_rows.py."""
    folder, policy = ROOT / CARDS[name]["rows"][0], load_policy(f"zoo:{name}")
    home = Location(str(folder))
    rows = own_rows(named(dataset.read(home, "episodes"), home), name, policy.trial)
    rows = rows[rows["scenario"] == "steady-0.7"]
    rows = rows[(rows["test_servers"] == 16) & (rows["episode"] < 2)]
    unit = Replay(folder).unit(rows.iloc[0])
    engine = play(policy, unit.env, unit.seed, rows["episode"].tolist())
    again = pd.DataFrame([engine.metrics(b) for b in range(2)])
    metrics = [column for column in again if column in rows]
    assert len(metrics) > 18
    pd.testing.assert_frame_equal(
        again[metrics], rows[metrics].reset_index(drop=True), check_exact=True, check_dtype=False
    )


# ---------------------------------------------------------------------- configs


def test_a_config_holds_a_name_to_its_content_wherever_the_package_lies() -> None:
    def trial(policy: object) -> TrialConfig:
        data = {"name": "x", "methods": ["scale"], "algorithm": {"initial_policy": str(policy)}}
        (trial,) = make_plan(sweep_from(data, "x"), "x").trials
        return trial.config

    named, by_path = trial("zoo:scale"), trial(ROOT / CARDS["scale"]["policy"])
    assert str(named.algorithm.initial_policy).startswith("zoo:scale#sha256=")
    assert named.trial_id == by_path.trial_id != trial("zoo:crossattn").trial_id
    assert TrialConfig.model_validate_json(named.model_dump_json()) == named
    network = initial_network(named)
    assert network is not None
    ours, theirs = network.state_dict(), load_policy("zoo:scale").network.state_dict()  # type: ignore[union-attr]
    assert all(bool((ours[key] == theirs[key]).all()) for key in theirs)


def test_a_config_of_another_version_of_a_policy_is_refused() -> None:
    held = {"algorithm": {"initial_policy": f"zoo:scale#sha256={16 * '0'}"}}
    with pytest.raises(UserError, match=r"algorithm\.initial_policy: .*policy\.json has changed"):
        initial_network(TrialConfig.of(**held))


def test_a_name_is_an_expert() -> None:
    trial = TrialConfig.of("crossattn", algorithm={"name": "imitation", "expert": "zoo:scale"})
    assert trial.algorithm.policy == PACKAGE / "zoo" / "scale"
    grid = {
        "name": "g",
        "methods": ["crossattn"],
        "algorithm": {"name": "imitation"},
        "grid": {"algorithm.expert": ["zoo:scale", "fastest-idle"]},
    }
    experts = {trial.config.algorithm.expert for trial in make_plan(sweep_from(grid, "grid"), "grid").trials}
    assert {str(expert).partition("#")[0] for expert in experts} == {"zoo:scale", "fastest-idle"}


def test_what_a_config_cannot_name_is_refused() -> None:
    for key in ("algorithm.initial_policy", "algorithm.expert", "evaluation.heuristics"):
        section, field = key.split(".")
        value = ["zoo:scal"] if field == "heuristics" else "zoo:scal"
        content = {"name": "n", "methods": ["scale"], section: {field: value}}
        with pytest.raises(UserError, match=rf"{key}.*did you mean 'zoo:scale'"):
            sweep_from(content, "sweep.yaml")


# ---------------------------------------------------------------------- live


def test_the_router_and_the_library_take_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rllib_scale.config import TierConfig
    from rllib_scale.live import Cluster
    from rllib_scale.live.requests import RouterSettings
    from rllib_scale.live.routing import policy_of

    assert policy_of(RouterSettings(scheduler="zoo:context-price"))[0].name == "zoo:context-price"
    (tmp_path / "own_rule.py").write_text(
        "from rllib_scale.schedulers.rules import RULES\nMine = RULES['large-only']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert policy_of(RouterSettings(scheduler="own_rule:Mine"))[0].name == "own_rule:Mine"
    tiers = [TierConfig(name="one", count=4, compute_gflops=1.0, memory_gb=8.0, idle_power_w=1.0, busy_power_w=2.0)]
    with pytest.raises(UserError, match="did you mean 'zoo:scale'"):
        Cluster("zoo:scal", tiers=tiers)
    Cluster("zoo:context-price", tiers=tiers)
