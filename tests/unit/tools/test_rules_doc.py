# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from tools.rules_doc import PAGE, page


def test_the_page_of_rules_is_what_the_data_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run tools/rules_doc.py"
