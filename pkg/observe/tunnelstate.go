// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/check"
)

// TunnelState is what the tunnel's extension API server shows.
type TunnelState struct {
	Agents  []tunnelv1alpha1.TunnelAgent
	Servers []tunnelv1alpha1.TunnelServer
}

// ErrNoTunnelAPI is returned if the cluster does not have the tunnel's extension API server.
var ErrNoTunnelAPI = errors.New("the cluster has no API " + tunnelv1alpha1.GroupName)

// ReadTunnelState reads the agents and servers. The client may be one for any group.
func ReadTunnelState(ctx context.Context, client rest.Interface) (TunnelState, error) {
	var out TunnelState
	var agents tunnelv1alpha1.TunnelAgentList
	var servers tunnelv1alpha1.TunnelServerList
	for resource, into := range map[string]any{"tunnelagents": &agents, "tunnelservers": &servers} {
		data, err := client.Get().AbsPath(tunnelv1alpha1.Path, resource).DoRaw(ctx)
		if err != nil {
			return out, explained(ctx, client, resource, err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			return out, fmt.Errorf("read %s: %w", resource, err)
		}
	}
	out.Agents, out.Servers = agents.Items, servers.Items
	return out, nil
}

// explained says what an error of the tunnel's API means, and what to do. kube-apiserver answers
// 403 also for a group that it does not have, and 401 comes from either of two servers, so it
// asks a second question.
func explained(ctx context.Context, client rest.Interface, resource string, err error) error {
	failed := func(why, hint string) error {
		return check.WithHint(fmt.Errorf("list %s: %s: %w", resource, why, err), "%s", hint)
	}
	ask := func(path string) error { _, err := client.Get().AbsPath(path).DoRaw(ctx); return err }
	switch {
	case apierrors.IsNotFound(err):
		return ErrNoTunnelAPI
	case apierrors.IsForbidden(err):
		if apierrors.IsNotFound(ask("/apis/" + tunnelv1alpha1.GroupName)) {
			return ErrNoTunnelAPI
		}
		return failed("you lack the right", "have an administrator bind the ClusterRole "+tunnelapi.ViewerRole+
			" to you: \"kubectl create clusterrolebinding NAME --clusterrole="+tunnelapi.ViewerRole+" --user=YOU\"")
	case apierrors.IsUnauthorized(err):
		if apierrors.IsUnauthorized(ask("/version")) {
			return failed("the API server does not accept your credentials", "renew those in your kubeconfig")
		}
		return failed("the server of "+tunnelv1alpha1.GroupName+" does not trust kube-apiserver, which names you to it",
			"look at the log of fairlead-apiserver: it reads the CA of the front proxy from the ConfigMap kube-system/extension-apiserver-authentication")
	case apierrors.IsServiceUnavailable(err):
		return failed("the API "+tunnelv1alpha1.GroupName+" is registered and not available", "\"fairlead check --only FL-EXT-002\" says why")
	}
	return fmt.Errorf("list %s: %w", resource, err)
}

// tunnelState is absent without the API server.
func (c *collector) tunnelState(ctx context.Context) (TunnelState, error) {
	out, err := ReadTunnelState(ctx, c.client.Discovery().RESTClient())
	if errors.Is(err, ErrNoTunnelAPI) {
		return absent[TunnelState]("%v", err)
	}
	return out, err
}

// Connected reports whether a server has a link to the agent.
func Connected(a *tunnelv1alpha1.TunnelAgent) bool {
	return meta.IsStatusConditionTrue(a.Status.Conditions, tunnelv1alpha1.ConditionConnected)
}

// Reachable reports whether the API server gets answers from the konnectivity-server.
func Reachable(s *tunnelv1alpha1.TunnelServer) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, tunnelv1alpha1.ConditionReachable)
}
