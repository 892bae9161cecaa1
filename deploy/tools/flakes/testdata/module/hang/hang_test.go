// SPDX-License-Identifier: Apache-2.0

package hang

import (
	"os"
	"testing"
)

func TestEnds(*testing.T) {}

func TestHangs(t *testing.T) {
	t.Run("inside", func(t *testing.T) {
		t.Log("waits for ever")
		if err := os.WriteFile(os.Getenv("FLAKES_FILE"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		select {}
	})
}
