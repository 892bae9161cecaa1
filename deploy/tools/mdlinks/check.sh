#!/bin/sh
# SPDX-License-Identifier: Apache-2.0

# Checks that each relative link of the Markdown files leads to a file of the repository, and to a heading that the file has.
# It looks at a copy of the files that Git knows or would add, because mdlinks would also read those below _output.
set -eu
cd "$(dirname "$0")/../../.."
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 sh -c 'for f do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | xargs -0 cp --parents -P -t "$copy"
"${GO:-go}" tool -modfile=deploy/tools/mdlinks/go.mod mdlinks -dir "$copy"
