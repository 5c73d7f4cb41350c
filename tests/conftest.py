# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make ``ansible_collections.inferops.serving`` importable from the checkout, and stop as with Ctrl-C when told to."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))


def pytest_configure() -> None:
    """A run that ``make`` or a CI ends has to end its hosts too, which fixtures do after an interrupt only."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
