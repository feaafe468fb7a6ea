"""The tables in docs/classes-live.md that the scripts of this folder write."""

import pathlib

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/classes-live.md"


def put(name, lines):
    """Replaces the lines between the two marks of the script `name`.py in the page."""
    begin, end = f"<!-- {name}: written by bench/classes/{name}.py -->", f"<!-- end of {name} -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin, 1)
    PAGE.write_text(before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + rest.split(end, 1)[1], encoding="utf-8")
