"""docs/case.md is generated, so it cannot drift from the schema."""

from __future__ import annotations

import pytest
from conftest import ROOT

from solver.case.document import markdown
from solver.case.schema import Case

pytestmark = pytest.mark.serial


def test_page_is_current() -> None:
    """Would catch a key added or changed without `python -m solver.case.document > docs/case.md`."""
    assert (ROOT / "docs" / "case.md").read_text(encoding="utf-8") == markdown()


def test_every_key_says_what_it_means_and_what_is_allowed() -> None:
    """Would catch an undocumented key, whose error messages would then not say what is allowed."""
    models = [Case, *(info.annotation for info in Case.model_fields.values())]
    for model in models:
        for name, info in getattr(model, "model_fields", {}).items():
            if hasattr(info.annotation, "model_fields"):
                continue
            assert info.description, name
            assert info.json_schema_extra, name
            assert info.json_schema_extra["allowed"], name
