"""Pages of docs/ whose words are written by hand and whose numbers are not: templates with places for tables."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from postprocess.load import RunError

__all__ = ["markdown_table", "study", "write_page"]

_PLACE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^\]]*\]\(([^)]+)\)\n", re.MULTILINE)
_INCOMPLETE = "*Some of these experiments have not been run here. What the text says of them was seen when they were.*"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page(template: str, tables: Mapping[str, str | None], path: Path) -> list[str]:
    """Fill postprocess/templates/<template> and write it, without the pictures that do not exist.

    Args:
        template: Its file name.
        tables: What goes to each place ``{{name}}``; None where the results are missing.
        path: Of the page.

    Returns:
        Names of the places that stay empty.

    Raises:
        KeyError: A place of the template is not in `tables`.
        OSError: The page cannot be written.
    """
    text = (files("postprocess") / "templates" / template).read_text(encoding="utf-8")
    page = _PLACE.sub(lambda place: tables[place[1]] or "*Not run yet.*", text)
    page = _PICTURE.sub(lambda picture: picture[0] if (path.parent / picture[1]).exists() else "", page)
    if any(tables[name] is None for name in _PLACE.findall(text)):
        title, _, rest = page.partition("\n")
        page = f"{title}\n\n{_INCOMPLETE}\n{rest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return [name for name in _PLACE.findall(text) if tables[name] is None]


def study(
    name: str,
    template: str,
    tables: Callable[[Path], Mapping[str, str | None]],
    draw: Callable[[Path, Path], list[Path]],
    arguments: Sequence[str] | None,
) -> int:
    """The command line of a page: read RESULTS, fill the template, draw the pictures beside it; returns the exit code.

    Args:
        name: Of the study: results/<name> by default, filled by ``make <name>``.
        template: Its page, of the same name in docs/.
        tables: From the results folder.
        draw: From the results folder, into a folder; leaves out what there are no results for.
        arguments: Of the command line; None is this program's.
    """
    command = name.replace("_", "-")
    results, page = Path("results") / name, Path("docs") / template
    parser = argparse.ArgumentParser(description=f"Tables and figures of what `make {command}` runs, as a page.")
    parser.add_argument("results", metavar="RESULTS", type=Path, nargs="?", default=results,
                        help=f"what `make {command}` filled (default: {results})")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, default=page, help=f"page (default: {page})")
    options = parser.parse_args(arguments)
    if not options.results.is_dir():
        print(f"{options.results}: there is no such folder; `make {command}` fills {results}", file=sys.stderr)
        return 2
    try:
        filled = tables(options.results)
        drawn = draw(options.results, options.output.parent / "images")
        empty = write_page(template, filled, options.output)
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        print(f"{options.results}: not the runs that `make {command}` makes, or damaged ({what})", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{options.output}: {error.strerror or error}", file=sys.stderr)
        return 1
    for path in [options.output, *drawn]:
        print(f"wrote {path}")
    for sweep, done, total in _unfinished(options.results):
        print(f"{sweep}: {done} of {total} members are done", file=sys.stderr)
    if empty:
        print(f"no results for: {', '.join(empty)}; `make {command}` runs what is missing", file=sys.stderr)
    return 0


def _unfinished(results: Path) -> Iterator[tuple[Path, int, int]]:
    """Sweeps of which some members are not done: folder, done, all."""
    for table in sorted(results.glob("*/sweep.csv")):
        with table.open(newline="", encoding="utf-8") as file:
            states = [row.get("state") for row in csv.DictReader(file)]
        if states.count("done") < len(states):
            yield table.parent, states.count("done"), len(states)
