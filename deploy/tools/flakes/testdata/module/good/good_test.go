// SPDX-License-Identifier: Apache-2.0

package good

import (
	"os"
	"testing"
)

func TestGood(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(*testing.T) {})
	}
}

func TestLayer(t *testing.T) {
	if layer := os.Getenv("FAIRLEAD_TEST_LAYER"); layer != "" {
		t.Skip("not in layer", layer)
	}
	if testing.Short() {
		t.Skip("not with -short")
	}
}
