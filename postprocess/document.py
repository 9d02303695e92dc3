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

__all__ = ["empty_places", "markdown_table", "study", "write_page"]

_PLACE = re.compile(r"^\{\{(\w+)\}\}$", re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^\]]*\]\(([^)]+)\)\n", re.MULTILINE)
_INCOMPLETE = "*Some of these experiments have not been run here. What the text says of them was seen when they were.*"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def empty_places(template: str, tables: Mapping[str, str | None]) -> list[str]:
    """Names of the places ``{{name}}`` of postprocess/templates/<template> for which there is no table.

    Raises:
        KeyError: A place of the template is not in `tables`.
    """
    return [name for name in _PLACE.findall(_read(template)) if tables[name] is None]


def write_page(template: str, tables: Mapping[str, str | None], path: Path) -> None:
    """Fill postprocess/templates/<template> and write it, without the pictures that do not exist.

    Args:
        template: Its file name.
        tables: What goes to each place ``{{name}}``; None where the results are missing.
        path: Of the page.

    Raises:
        KeyError: A place of the template is not in `tables`.
        OSError: The page cannot be written.
    """
    page = _PLACE.sub(lambda place: tables[place[1]] or "*Not run yet.*", _read(template))
    page = _PICTURE.sub(lambda picture: picture[0] if (path.parent / picture[1]).exists() else "", page)
    if empty_places(template, tables):
        title, _, rest = page.partition("\n")
        page = f"{title}\n\n{_INCOMPLETE}\n{rest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _read(template: str) -> str:
    return (files("postprocess") / "templates" / template).read_text(encoding="utf-8")


def study(
    name: str,
    module: str,
    template: str,
    tables: Callable[[Path], Mapping[str, str | None]],
    draw: Callable[[Path, Path], list[Path]],
    arguments: Sequence[str] | None,
) -> int:
    """The command line of a page: read RESULTS, fill the template, draw the pictures beside it; returns the exit code.

    The page of docs/ is replaced by a complete one only; a page of what there is goes where ``-o`` says.

    Args:
        name: Of the study: results/<name> by default, filled by ``make <name>``.
        module: Of the command, in postprocess.
        template: Its page, of the same name in docs/.
        tables: From the results folder.
        draw: From the results folder, into a folder; leaves out what there are no results for.
        arguments: Of the command line; None is this program's.
    """
    command = name.replace("_", "-")
    results, page = Path("results") / name, Path("docs") / template
    parser = argparse.ArgumentParser(
        prog=f"python -m postprocess.{module}",
        description=f"Tables and figures of what `make {command}` runs, as a page.",
    )
    parser.add_argument("results", metavar="RESULTS", type=Path, nargs="?", default=results,
                        help=f"what `make {command}` filled (default: {results})")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE", type=Path,
                        help=f"page of what there is (default: {page}, replaced by a complete one only)")  # fmt: skip
    options = parser.parse_args(arguments)
    if not options.results.is_dir():
        print(f"{options.results}: there is no such folder; `make {command}` fills {results}", file=sys.stderr)
        return 2
    output = options.output or page
    try:
        filled = tables(options.results)
        missing = [
            f"{sweep}: {done} of {total} members are done" for sweep, done, total in _unfinished(options.results)
        ]
        if empty := empty_places(template, filled):
            missing.append(f"no results for: {', '.join(empty)}; `make {command}` runs what is missing")
        if options.output is None and (missing or not page.parent.is_dir()):
            here = (
                f"{page} and its pictures are left as they are"
                if page.parent.is_dir()
                else f"{page.parent}: no such folder"
            )
            print("\n".join([*missing, f"{here}; -o FILE writes a page of what there is"]), file=sys.stderr)
            return 1
        drawn = draw(options.results, output.parent / "images")
        write_page(template, filled, output)
    except RunError as error:
        print(error, file=sys.stderr)
        return 2
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        print(f"{options.results}: not the runs that `make {command}` makes, or damaged ({what})", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{output}: {error.strerror or error}", file=sys.stderr)
        return 1
    for path in [output, *drawn]:
        print(f"wrote {path}")
    for line in missing:
        print(line, file=sys.stderr)
    return 0


def _unfinished(results: Path) -> Iterator[tuple[Path, int, int]]:
    """Sweeps of which some members are not done: folder, done, all."""
    for table in sorted(results.glob("*/sweep.csv")):
        with table.open(newline="", encoding="utf-8") as file:
            states = [row.get("state") for row in csv.DictReader(file)]
        if states.count("done") < len(states):
            yield table.parent, states.count("done"), len(states)
