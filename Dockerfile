# The image of cluster-kuberay.yaml; docs/cluster.md says how to build it.
FROM python:3.12-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends wget && useradd --create-home ray
ENV RAY_USAGE_STATS_ENABLED=0 RAY_JOB_STOP_WAIT_TIME_S=60
WORKDIR /home/ray/rllib_scale
COPY --chown=ray pyproject.toml setup.py constraints.txt README.md ./
COPY --chown=ray rllib_scale rllib_scale
COPY --chown=ray analysis analysis
COPY --chown=ray tune_configs tune_configs
RUN pip install --no-cache-dir --constraint constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu --editable '.[cluster]'
USER ray
RUN rllib-scale doctor --compile
