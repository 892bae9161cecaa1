// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// ConnectServer serves requests for connections through an agent.
type ConnectServer interface {
	Serve(agent *v1alpha1.TunnelAgent, o *v1alpha1.TunnelAgentConnectOptions, r rest.Responder) http.Handler
	// Refused notes a request that is not served, and why.
	Refused(ctx context.Context, agent string, o *v1alpha1.TunnelAgentConnectOptions, err error)
}

// Connect is the subresource tunnelagents/portforward.
type Connect struct {
	agents *Watched
	server ConnectServer
}

var _ rest.Connecter = (*Connect)(nil)

// New implements rest.Storage.
func (c *Connect) New() runtime.Object { return &v1alpha1.TunnelAgentConnectOptions{} }

// Destroy implements rest.Storage.
func (c *Connect) Destroy() {}

// ConnectMethods implements rest.Connecter: a WebSocket request is a GET.
func (c *Connect) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions implements rest.Connecter.
func (c *Connect) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return &v1alpha1.TunnelAgentConnectOptions{}, false, ""
}

// Connect implements rest.Connecter.
func (c *Connect) Connect(ctx context.Context, name string, options runtime.Object, r rest.Responder) (http.Handler, error) {
	o, ok := options.(*v1alpha1.TunnelAgentConnectOptions)
	if !ok {
		return nil, fmt.Errorf("the options are a %T", options)
	}
	found, err := c.agents.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		c.server.Refused(ctx, name, o, err)
		return nil, err
	}
	agent, ok := found.(*v1alpha1.TunnelAgent)
	if !ok {
		return nil, fmt.Errorf("the agent is a %T", found)
	}
	return c.server.Serve(agent, o, r), nil
}
