"""The deliberate faults of `tests.breakages` still apply to the code, and name tests that exist."""

import pytest

from tests.breakages import FAULTS, applied
from tests.paths import ROOT


@pytest.mark.parametrize("name", FAULTS)
def test_fault_applies_to_the_code_and_names_tests(name: str) -> None:
    fault = FAULTS[name]
    compile(applied(fault, ROOT), fault.file, "exec")
    for test in fault.tests:
        path, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}" in (ROOT / path).read_text(encoding="utf-8"), test
