# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stand-in for torchvision: SGLang and transformers import its names for image models, which are not served here."""

from inferops_cpu_standin.absent import absent_names

__getattr__ = absent_names(__name__)
