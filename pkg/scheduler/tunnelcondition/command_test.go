// SPDX-License-Identifier: Apache-2.0

package tunnelcondition

import (
	"io"
	"strings"
	"testing"
)

// TestBadFlags: flags with which every node or no node would count as reached are rejected, with
// the flag and the remedy.
func TestBadFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"all pods":      {[]string{"--agent-selector="}, []string{"--agent-selector selects every Pod", "k8s-app=konnectivity-agent"}},
		"no selector":   {[]string{"--agent-selector=a=b=c"}, []string{`--agent-selector="a=b=c"`, "k8s-app=konnectivity-agent"}},
		"no kubeconfig": {[]string{"--kubeconfig=/nowhere"}, []string{"load the kubeconfig", "/nowhere"}},
		"an argument":   {[]string{"agents"}, []string{"agents"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewCommand()
			cmd.SetArgs(tc.args)
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if err == nil {
				t.Fatal("it ran")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %q", want, err)
				}
			}
			if strings.Contains(err.Error(), "%!") {
				t.Errorf("%q", err)
			}
		})
	}
}
