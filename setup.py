"""The packages of the distribution: each folder with an `__init__.py` in rllib_scale/ and analysis/; presets."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["rllib_scale", "rllib_scale.*"]),
        "rllib_scale.tune_configs",
        "rllib_scale_analysis",
        *(f"rllib_scale_analysis.{name}" for name in find_packages("analysis")),
    ]
)
