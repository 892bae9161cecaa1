// SPDX-License-Identifier: Apache-2.0

package doccommands_test

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/e2e/doccommands"
)

// TestCommands: continued lines and here-documents are one command, the indentation of a list is none of the command, and output, other blocks and
// programs are no commands.
func TestCommands(t *testing.T) {
	const page = "text\n```sh\n# comment\na\nb \\\n  c |\n  d  # end\n```\n" +
		"1. item\n\n   ```sh\n   cat > f <<'EOF'\n   x: |\n     y\n   EOF\n   e\n   ```\n" +
		"```console\n$ f\nits output\n$ g &\n```\n```yaml\nh: i\n```\n```\nj\n```\n```sh\n#!/bin/sh\nk\n```\n"
	want := []doccommands.Command{
		{4, "a"}, {5, "b \\\n  c |\n  d  # end"}, {12, "cat > f <<'EOF'\nx: |\n  y\nEOF"}, {16, "e"}, {19, "f"}, {21, "g &"},
	}
	if got := doccommands.Commands(page); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
