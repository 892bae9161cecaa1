// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/fairlead-dev/fairlead/pkg/cli/clusterflags"
)

// TestTakesCommand proves that every command whose usage has "-- COMMAND" accepts one: without the annotation the root
// command refuses all arguments.
func TestTakesCommand(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	found := 0
	for _, cmd := range NewCommand(streams).Commands() {
		if !strings.Contains(cmd.Use, "-- COMMAND") {
			continue
		}
		found++
		if cmd.Annotations[clusterflags.TakesCommand] == "" {
			t.Errorf("%s lacks the annotation %s", cmd.Name(), clusterflags.TakesCommand)
		}
	}
	if found < 2 {
		t.Errorf("found %d commands with a command behind --, want proxy and socks5", found)
	}
}
