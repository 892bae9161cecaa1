// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

// agents chooses agents from those that the tunnel's API shows.
type agents struct {
	client kubernetes.Interface

	mu    sync.Mutex
	known map[string]agentNames // by node; "" has some of any node
}

// agentNames are connected agents, and until when that is assumed.
type agentNames struct {
	names []string
	until time.Time
}

const (
	// agentsListed is how many agents of any node are asked for: one of them is enough.
	agentsListed = 100
	// nodesKnown bounds the nodes whose agents are kept.
	nodesKnown = 1000
)

// pick returns a connected agent of a node or, if it has none, of any, that is not one of those tried.
func (a *agents) pick(ctx context.Context, node string, tried []string) (string, error) {
	nodes := []string{node, ""}
	if node == "" {
		nodes = nodes[1:]
	}
	for _, n := range nodes {
		names, err := a.of(ctx, n)
		if err != nil {
			return "", err
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(tried, name) })
		if len(names) > 0 {
			return names[rand.IntN(len(names))], nil
		}
	}
	return "", gateway.Errorf(gateway.ReasonPathDown, "see kubectl get tunnelagents", "no agent of the tunnel is connected and takes dials")
}

// forget has the agents be asked for again.
func (a *agents) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.known)
}

// of returns the names of connected agents of a node.
func (a *agents) of(ctx context.Context, node string) ([]string, error) {
	a.mu.Lock()
	known, ok := a.known[node]
	a.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.names, nil
	}
	names, err := a.list(ctx, node)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= nodesKnown {
		clear(a.known)
	}
	a.known[node] = agentNames{names, time.Now().Add(agentsKept)}
	return names, nil
}

func (a *agents) list(ctx context.Context, node string) (names []string, err error) {
	selector := fields.Set{tunnelv1alpha1.FieldDraining: "false"}
	if node != "" {
		selector[tunnelv1alpha1.FieldNodeName] = node
	}
	for token := ""; ; {
		body, err := a.client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents").SetHeader("Accept", "application/json").
			Param("fieldSelector", selector.AsSelector().String()).Param("limit", strconv.Itoa(agentsListed)).Param("continue", token).Do(ctx).Raw()
		if err != nil {
			return nil, agentsError(err)
		}
		var list tunnelv1alpha1.TunnelAgentList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, gateway.Errorf(gateway.ReasonPathDown, "check that the tunnel's API is that of this version", "read the list of agents: %w", err)
		}
		for i := range list.Items {
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, tunnelv1alpha1.ConditionConnected) {
				names = append(names, list.Items[i].Name)
			}
		}
		if token = list.Continue; token == "" || len(names) > 0 {
			return names, nil
		}
	}
}

func agentsError(err error) error {
	reason, hint := gateway.ReasonPathDown, "check that the tunnel's API is available: kubectl get apiservice v1alpha1.tunnel.fairlead.dev"
	switch {
	case apierrors.IsForbidden(err):
		reason, hint = gateway.ReasonDenied, "ask for the ClusterRole fairlead-tunnel-connect"
	case apierrors.IsNotFound(err):
		hint = "set tunnelAPI.enabled and tunnelAPI.connect to true in the bundle"
	case apierrors.IsUnauthorized(err):
		hint = "renew the credentials of the kubeconfig"
	}
	return gateway.Errorf(reason, hint, "list the agents of the tunnel: %w", err)
}
