# SPDX-License-Identifier: Apache-2.0

# Unpacks the node's own copies, once: what somebody changed or removed since must stay as it is after a restart.
set -euo pipefail
stamp=/kind/fairlead-files-unpacked
[[ -e $stamp ]] && exit 0
tar --extract --file=/kind/fairlead/files.tar --directory=/ --same-owner --numeric-owner --preserve-permissions --no-overwrite-dir
touch "$stamp"
