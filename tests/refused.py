"""A refusal of the command line: exit code 2 and one line on stderr."""

from click.testing import CliRunner

from rllib_scale.cli import main


def refused(*arguments: object) -> str:
    """The line by which the command line refuses a command."""
    done = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert done.exit_code == 2, (arguments, done.exit_code, done.exception, done.output)
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert len(line) <= 600, line
    return line
