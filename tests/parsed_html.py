"""What a reader of an HTML page without JavaScript finds in it."""

from __future__ import annotations

from html.parser import HTMLParser


class Parsed(HTMLParser):
    """Texts by what they stand in; fails on a tag that is closed where it is not open."""

    VOID = ("meta", "br", "wbr", "link", "img")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[tuple[tuple[str, ...], str]] = []
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.texts and self.attributes[-1][0] == "wbr":  # the text before may be broken here, and goes on
            self.attributes.pop()
            data = self.texts.pop()[1] + data
        self.texts.append((tuple(self.open), data))

    def within(self, tag: str) -> list[str]:
        return [text for tags, text in self.texts if tag in tags]

    @property
    def text(self) -> str:
        """All of its words, but for figures, styles and scripts."""
        return " ".join(text for tags, text in self.texts if not {"svg", "style", "script"} & set(tags))
