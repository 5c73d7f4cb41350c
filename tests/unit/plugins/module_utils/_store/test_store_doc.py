# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/store.md promises is tested under the names that it gives."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[4]
DOCUMENT = TESTS.parent / "docs/store.md"


def test_every_test_that_the_document_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    files = [*TESTS.glob("unit/plugins/**/test_*.py"), *TESTS.glob("integration/test_*.py")]
    defined = {
        name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M)
    }
    assert len(named) > 30
    assert named <= defined
