// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/internal/testutil"
	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/rbac"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
)

// connectedAgents reads the agents that the API shows as connected, by name.
func connectedAgents(ctx context.Context) (map[string]tunnelv1alpha1.TunnelAgent, error) {
	return agentsThatAre(ctx, metav1.ConditionTrue)
}

// agentsThatAre reads the agents whose condition Connected has a status. It asks once.
func agentsThatAre(ctx context.Context, connected metav1.ConditionStatus) (map[string]tunnelv1alpha1.TunnelAgent, error) {
	all, err := suite.TunnelAgents(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]tunnelv1alpha1.TunnelAgent{}
	for _, a := range all {
		if meta.IsStatusConditionPresentAndEqual(a.Status.Conditions, tunnelv1alpha1.ConditionConnected, connected) {
			out[a.Name] = a
		}
	}
	return out, nil
}

// The bundle's extension API server answers behind kube-apiserver: kubectl and fairlead show the agents of the cluster, whose
// nodes are those of the cluster, and users without rights are refused.
// It observes EXT-01, EXT-11 and EXT-15 of docs/requirements.md.
func TestTunnelAPI(t *testing.T) {
	testutil.Full(t, "the cluster of `make test` has the operator, which does not go with the tunnel's API")
	kubectl, err := suite.BuildKubectl(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var agents map[string]tunnelv1alpha1.TunnelAgent
	run(t, "tunnel API", 3*time.Minute,
		step{"two agents are connected", func(ctx context.Context, t *testing.T) {
			err := harness.Wait(ctx, time.Minute, "the tunnel API to show two connected agents", func(ctx context.Context) error {
				var err error
				if agents, err = connectedAgents(ctx); err == nil && len(agents) != 2 {
					err = fmt.Errorf("%d agents are connected", len(agents))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}},
		step{"kubectl shows agents", func(ctx context.Context, t *testing.T) {
			out, err := suite.Kubectl(ctx, kubectl, "", "get", "tunnelagents", "-o", "wide")
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for name, a := range agents {
				node, err := suite.Client.CoreV1().Nodes().Get(ctx, a.Status.NodeName, metav1.GetOptions{})
				if err != nil || !strings.Contains(out, name) || !strings.Contains(out, node.Name) {
					t.Errorf("agent %s on node %q: %v\n%s", name, a.Status.NodeName, err, out)
				}
				if out, err := suite.Kubectl(ctx, kubectl, "", "wait", "--for=condition=Connected", "tunnelagent/"+name, "--timeout=30s"); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			}
			for _, args := range [][]string{{"explain", "tunnelagents.status.servers.rttMicroseconds"}, {"get", "ts"}, {"get", "tc", "--chunk-size=1"}} {
				if out, err := suite.Kubectl(ctx, kubectl, "", args...); err != nil {
					t.Errorf("kubectl %v: %v\n%s", args, err, out)
				}
			}
		}},
		step{"kubectl says that there is nothing", func(ctx context.Context, t *testing.T) {
			cmd, stdout, stderr := suite.Program(ctx, kubectl, "get", "tunnelagents", "--field-selector", "status.agentID=none")
			if err := cmd.Run(); err != nil || stdout.Len() > 0 || !strings.Contains(stderr.String(), "No resources found") {
				t.Errorf("%v\n%s%s", err, stdout, stderr)
			}
		}},
		step{"fairlead shows agents", func(ctx context.Context, t *testing.T) {
			top, err := suite.Must(ctx, "top", "tunnels", "--context", suite.Context())
			if err != nil {
				t.Fatal(err)
			}
			for name, a := range agents {
				wantText(t, "top tunnels", top, name)
				wantText(t, "top tunnels", top, a.Status.Servers[0].ServerID)
			}
			status, err := suite.Must(ctx, "status", "--context", suite.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantText(t, "status", status, "tunnel API: 1/1 servers answer, agents connected: 2")
		}},
		step{"the server connects to the API itself", func(ctx context.Context, t *testing.T) {
			if !suite.Simulated() {
				return // there the Service has no fixed address, and an agent connects
			}
			err := harness.Wait(ctx, time.Minute, "a connection that the server has made itself", func(ctx context.Context) error {
				body, err := suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelservers").Do(ctx).Raw()
				if err != nil {
					return err
				}
				var list tunnelv1alpha1.TunnelServerList
				if err := json.Unmarshal(body, &list); err != nil {
					return err
				}
				if len(list.Items) != 1 || list.Items[0].Status.LocalConnections == 0 {
					return fmt.Errorf("servers: %s", body)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}},
		step{"a user without rights is refused", func(ctx context.Context, t *testing.T) {
			err := suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents").SetHeader("Impersonate-User", "mallory").Do(ctx).Error()
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "mallory" cannot list resource "tunnelagents"`) {
				t.Errorf("want a refusal, got %v", err)
			}
		}},
		step{"a user with the role may look", func(ctx context.Context, t *testing.T) {
			mayView(ctx, t, "viewer")
			err := harness.Wait(ctx, 30*time.Second, "the user to see the agents", func(ctx context.Context) error {
				return suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents").SetHeader("Impersonate-User", "viewer").Do(ctx).Error()
			})
			if err != nil {
				t.Error(err)
			}
		}},
	)
}

// Without agents the API answers every request, and says that the agents are gone.
func TestTunnelAPIWithoutAgents(t *testing.T) {
	testutil.Full(t, "TestAggregatedAPI stops the agents, too")
	if !suite.Simulated() {
		t.Skip("the firewall lets nothing but the tunnel through, so there an agent connects to the API's Pod")
	}
	agents := suite.Agents()
	connected := func(ctx context.Context, t *testing.T) {
		err := harness.Wait(ctx, time.Minute, "the tunnel API to show two connected agents", func(ctx context.Context) error {
			all, err := connectedAgents(ctx)
			if err == nil && len(all) != 2 {
				err = fmt.Errorf("%d agents are connected", len(all))
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	run(t, "tunnel API without agents", 3*time.Minute,
		step{"two agents are connected", connected},
		step{"without agents, each request is answered", func(ctx context.Context, t *testing.T) {
			atEnd(ctx, t, func(ctx context.Context) {
				if err := agents.Start(ctx); err != nil {
					t.Error(err)
				}
				connected(ctx, t)
			})
			if err := agents.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			gone := map[string]tunnelv1alpha1.TunnelAgent{}
			testutil.Eventually(t, time.Minute, func() (err error) {
				if gone, err = agentsThatAre(ctx, metav1.ConditionFalse); err != nil {
					t.Fatalf("an answer without agents: %v", err)
				}
				if len(gone) < 2 {
					return fmt.Errorf("%d agents are gone", len(gone))
				}
				return nil
			})
			if left, err := connectedAgents(ctx); err != nil || len(left) > 0 || len(gone) != 2 {
				t.Errorf("%d agents are connected, and %d gone: %v", len(left), len(gone), err)
			}
			for _, resource := range []string{"tunnelservers", "tunnelconnections"} {
				if err := suite.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, resource).MaxRetries(0).Do(ctx).Error(); err != nil {
					t.Errorf("%s: %v", resource, err)
				}
			}
		}},
	)
}

// mayView gives a user the bundle's role until the test ends.
func mayView(ctx context.Context, t *testing.T, user string) {
	t.Helper()
	binding := rbac.ClusterRoleBinding("fairlead-e2e-tunnel-viewer", tunnelapi.ViewerRole, rbac.User(user))
	bindings := suite.Client.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atEnd(ctx, t, func(ctx context.Context) { _ = bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}) })
}
