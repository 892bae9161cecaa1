// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
)

// The rules are in the format of "iptables -S".
func TestPodsKeptApart(t *testing.T) {
	const (
		drop   = "-P INPUT ACCEPT\n-P FORWARD DROP\n-P OUTPUT ACCEPT\n"
		docker = drop + "-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -j RETURN\n"
	)
	for name, tc := range map[string]struct{ command, bridged, rules, want string }{
		"Docker beside Podman":   {"podman", "1\n", docker, "iptables -I DOCKER-USER -s 10.244.0.0/16 -d 10.244.0.0/16 -j ACCEPT"},
		"Docker beside nerdctl":  {"nerdctl", "1\n", docker, "iptables -I DOCKER-USER -s"},
		"another firewall":       {"podman", "1\n", drop, "iptables -I FORWARD -s"},
		"Docker's own network":   {"docker", "1\n", docker, ""},
		"nothing is dropped":     {"podman", "1\n", "-P FORWARD ACCEPT\n", ""},
		"bridges are left alone": {"podman", "0\n", docker, ""},
		"opened":                 {"podman", "1\n", docker + "-A DOCKER-USER -s 10.244.0.0/16 -d 10.244.0.0/16 -j ACCEPT\n", ""},
		"opened, with a comment": {"podman", "1\n", docker + "-A FORWARD -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment pods -j ACCEPT\n", ""},
		"closed":                 {"podman", "1\n", docker + "-A FORWARD -s 10.244.0.0/16 -d 10.244.0.0/16 -j DROP\n", "iptables -I DOCKER-USER"},
		"not root":               {"podman", "1\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			fakeCommand(t, "iptables", `[ "$*" = "--wait -S" ] && [ -n "$RULES" ] && echo "$RULES"`)
			t.Setenv("RULES", tc.rules)
			file := filepath.Join(t.TempDir(), "bridge-nf-call-iptables")
			if err := os.WriteFile(file, []byte(tc.bridged), 0o600); err != nil {
				t.Fatal(err)
			}
			got := podsKeptApart(t.Context(), tc.command, file)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("%q, want %q in it", got, tc.want)
			}
			if got := podsKeptApart(t.Context(), tc.command, file+"-not-there"); got != "" {
				t.Errorf("without the bridge's module: %q", got)
			}
		})
	}
}

// A command that waits for agents reports the firewall.
func TestAgentsWaitBehindAFirewall(t *testing.T) {
	p := newTestPlan(t, "")
	p.keptApart = ptr.To("; the firewall")
	agents := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.bundle.Namespace, Name: konnectivity.AgentName},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 2},
	}
	_, err := p.agentsReady(t.Context(), fake.NewClientset(agents))
	var wait waitError
	if !errors.As(err, &wait) || err.Error() != "0 of 2 konnectivity-agent ready; the firewall" {
		t.Errorf("agentsReady = %v", err)
	}
}
