# Copyright (c) 2026, inferops contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that the modules of a service have in common."""

from __future__ import annotations


class ModuleDocFragment:
    """Of all of them, and of those that write releases."""

    DOCUMENTATION = r"""
options:
  home:
    description: The directory of the service. It and its releases belong to root.
    type: path
    required: true
  unit:
    description: The systemd unit.
    type: str
    required: true
"""

    RELEASE = r"""
options:
  unit_dir:
    description: Where units are installed.
    type: path
    default: /etc/systemd/system
  environment:
    description: The text of the environment file, which only root may read. It may hold secrets. It may be empty.
    type: str
  secret_args:
    description:
      - Server arguments that are secrets, as the JSON text of a configuration file of SGLang. Only root may read it.
        It is C(secret_args.yaml) in the release. Empty where there are none.
    type: str
    default: ""
  plan:
    description: What is served, kept beside the unit, with the command line in C(argv).
    type: dict
  account:
    description:
      - The user of the service, which is only looked at. A change is due where there is none, or it differs.
    type: dict
    version_added: 0.3.0
    suboptions:
      name:
        description: The name of the user.
        type: str
        required: true
      group:
        description: The name of its group.
        type: str
        required: true
      home:
        description: Its home directory.
        type: path
        required: true
      shell:
        description: Its shell.
        type: path
        required: true
  directories:
    description:
      - The directories of the service, which are only looked at. A change is due where one is missing or differs.
    version_added: 0.3.0
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory.
        type: path
        required: true
      owner:
        description: The name of its owner.
        type: str
        required: true
      group:
        description: The name of its group.
        type: str
        required: true
      mode:
        description: Its permissions, as an octal number in quotes.
        type: str
        required: true
  consent:
    description: Whether somebody has consented to the restart.
    type: bool
    default: false
  rehearsal_timeout:
    description: Seconds that the engine has to judge the command line.
    type: int
    default: 180
  keep_releases:
    description: Releases that are kept. The current and the previous one always stay.
    type: int
    default: 5
"""
