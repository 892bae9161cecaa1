// SPDX-License-Identifier: Apache-2.0

package half

import (
	"os"
	"testing"
)

// TestHalf fails every second time: the file is there then.
func TestHalf(t *testing.T) {
	file := os.Getenv("FLAKES_FILE")
	t.Run("always", func(*testing.T) {})
	t.Run("sometimes", func(t *testing.T) {
		if os.Remove(file) == nil {
			t.Error("the file was there")
		} else if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}
