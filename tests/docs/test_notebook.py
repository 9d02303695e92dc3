"""The notebook docs/first_steps.ipynb, executed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first_steps.ipynb"


@pytest.mark.serial  # a kernel of its own
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")  # Jupyter's own
def test_notebook_runs_and_prints_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a notebook that no longer runs, or whose committed output is that of an older version."""
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[1]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    shown = [_printed(cell) for cell in notebook.cells]
    assert any(shown), "the committed notebook must be an executed one"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(NOTEBOOK.parent)}}).execute()
    assert [_printed(cell) for cell in notebook.cells] == shown
    pictures = [o for cell in notebook.cells for o in cell.get("outputs", []) if "image/png" in o.get("data", {})]
    assert len(pictures) == 3


def _printed(cell: nbformat.NotebookNode) -> str:
    """Standard output of a cell; warnings go elsewhere."""
    outputs = (output for output in cell.get("outputs", []) if output.output_type == "stream")
    return "".join(output.text for output in outputs if output.name == "stdout")
