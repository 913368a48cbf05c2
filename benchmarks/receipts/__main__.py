"""`python -m benchmarks.receipts NAME ...`: predict receipts whose result has not been opened."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.receipts.book import Receipt, engines, receipts
from benchmarks.receipts.player import predict


@click.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--sessions", type=click.Path(path_type=Path, exists=True), help="Recorded ones (kv-cache-tester).")
def main(names: tuple[str, ...], sessions: Path | None) -> None:
    """Write predicted.yaml of the receipts NAMES."""
    book = {receipt.name: receipt for receipt in receipts()}
    for name in names:
        if name not in book:
            raise click.BadParameter(f"{name}; there are {', '.join(book)}")
        _predict(book[name], sessions)


def _predict(receipt: Receipt, sessions: Path | None) -> None:
    setting = receipt.setting
    if setting.part != "seen" and receipt.measured is not None:
        raise click.ClickException(f"{receipt.name}: its result is known; the prediction stays as it is")
    if setting.workload.kind == "recorded" and sessions is None:
        raise click.ClickException(f"{receipt.name}: needs --sessions")
    receipt.write("predicted", predict(setting, engines()[setting.engine], sessions))


if __name__ == "__main__":
    main()
