"""The packages of the distribution: every folder with an `__init__.py` in rllib_scale/ and analysis/."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["rllib_scale", "rllib_scale.*"]),
        "rllib_scale_analysis",
        *(f"rllib_scale_analysis.{name}" for name in find_packages("analysis")),
    ]
)
