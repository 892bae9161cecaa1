// SPDX-License-Identifier: Apache-2.0

package nodefs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestErrorsNameTheNodesPaths checks that errors do not show where this process sees the node's files.
func TestErrorsNameTheNodesPaths(t *testing.T) {
	root := t.TempDir()
	h := Host{Root: root}
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, readErr := h.Read("/etc/absent")
	for name, err := range map[string]error{"read": readErr, "rename": h.Rename("/file", "/absent/file")} {
		if err == nil || strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), " /") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
