"""`python -m rllib_scale`: the command line, from the code in the current folder."""

from rllib_scale.cli import main

main(prog_name="rllib-scale")
