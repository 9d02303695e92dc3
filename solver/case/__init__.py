"""Case files: TOML in, a frozen validated `Case` out, or every mistake at once."""

from solver.case.load import CaseError, load_case
from solver.case.schema import Case
from solver.case.write import dump_case

__all__ = ["Case", "CaseError", "dump_case", "load_case"]
