// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
)

// Projection is a service account token in a file that is renewed, as the kubelet
// does for a projected volume.
type Projection struct {
	// Namespace and ServiceAccount identify the token's service account.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	// Audience is the token's audience; "" is the API server.
	Audience string `json:"audience,omitempty"`
	// Node is the node that the token is bound to; "" for none. A Pod's token names
	// its node, and the Konnectivity server refuses an agent without it.
	Node string `json:"node,omitempty"`
	// File is the file that the token is written to.
	File string `json:"file"`
}

// tokenLifetime is the requested lifetime of a token, and tokenRenewal is the share
// of it after which the token is renewed. Both are the kubelet's values.
const (
	tokenLifetime = time.Hour
	tokenRenewal  = 0.8
)

// projections lists the tokens of a cluster: one for every agent, for every replica of
// the second scheduler, for the gateway, for the tunnel's API server, and for the operator.
func (p *plan) projections() []Projection {
	var list []Projection
	if p.tunnel() {
		agent := konnectivity.Agent(p.bundle)
		for i := range p.state.Agents {
			projection := Projection{
				Namespace: agent.Namespace, ServiceAccount: agent.ServiceAccount,
				Audience: p.bundle.Konnectivity.AuthenticationAudience, Node: p.agentNode(i), File: p.Token(agentName(i)),
			}
			list = append(list, projection)
			if p.countsLeases() {
				list = append(list, Projection{
					Namespace: agent.Namespace, ServiceAccount: agent.ServiceAccount, File: p.Token(apiToken(agentName(i))),
				})
			}
		}
	}
	c := scheduler.Component(p.bundle)
	for i := range p.state.Schedulers {
		list = append(list, Projection{Namespace: c.Namespace, ServiceAccount: c.ServiceAccount, File: p.Token(schedulerName(i))})
	}
	if gateway.Enabled(p.bundle) && !gateway.IsStatic(p.bundle) {
		g := gateway.Component(p.bundle)
		list = append(list, Projection{Namespace: g.Namespace, ServiceAccount: g.ServiceAccount, File: p.Token(progGateway)})
	}
	if tunnelapi.Enabled(p.bundle) {
		a := tunnelapi.Component(p.bundle)
		list = append(list, Projection{Namespace: a.Namespace, ServiceAccount: a.ServiceAccount, File: p.Token(progTunnelAPI)})
	}
	if p.state.Operator {
		o := operator.Component(operatorOptions)
		list = append(list, Projection{Namespace: o.Namespace, ServiceAccount: o.ServiceAccount, File: p.Token(progOperator)})
	}
	return list
}

// projector renews tokens.
type projector struct {
	kubeconfig string
	list       []Projection
}

// checkInterval is how often the projector checks for tokens that are due and for
// recreated accounts.
const checkInterval = 10 * time.Second

// kept is what is known about the token in a projection's file.
type kept struct {
	due    time.Time
	failed bool
	// subject identifies the token's account and node; see Projection.subject.
	subject string
}

// run renews tokens until ctx ends: when they are due, and when their account was
// deleted or recreated, because the API server refuses tokens of an account with
// another UID. It starts before the API server answers and before the service
// accounts exist, so it retries after errors.
func (p projector) run(ctx context.Context) {
	tokens := make([]kept, len(p.list))
	var client kubernetes.Interface
	for {
		wait := checkInterval
		for i, projection := range p.list {
			var err error
			if client == nil {
				client, err = newClient(p.kubeconfig)
			}
			if err == nil {
				err = projection.refresh(ctx, client, &tokens[i])
			}
			// Before the API server runs, this fails some dozens of times: log it
			// once.
			if err != nil && !tokens[i].failed {
				klog.FromContext(ctx).Info("Token not renewed, will try again", "file", projection.File, "err", err)
			}
			if tokens[i].failed = err != nil; err != nil {
				wait = 250 * time.Millisecond
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// refresh renews the token if it is due, or if its account has changed.
func (p Projection) refresh(ctx context.Context, client kubernetes.Interface, k *kept) error {
	subject, err := p.subject(ctx, client)
	if time.Now().Before(k.due) {
		switch {
		case apierrors.IsNotFound(err):
			// No token can be issued now. Request one as soon as the account exists
			// again.
			k.due = time.Time{}
		case err != nil, subject == k.subject:
			return nil //nolint:nilerr // an API server that does not answer says nothing about the token
		}
	}
	if err != nil {
		return err
	}
	// subject was read before the token is renewed: if the account is recreated in
	// between, the next check notices that.
	due, err := p.renew(ctx, client)
	if err == nil {
		k.due, k.subject = due, subject
	}
	return err
}

// subject returns what the API server validates the token against: the UIDs of its
// service account and of the node that it is bound to.
func (p Projection) subject(ctx context.Context, client kubernetes.Interface) (string, error) {
	account, err := client.CoreV1().ServiceAccounts(p.Namespace).Get(ctx, p.ServiceAccount, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading ServiceAccount %s/%s: %w", p.Namespace, p.ServiceAccount, err)
	}
	if p.Node == "" {
		return string(account.UID), nil
	}
	node, err := client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading node %s: %w", p.Node, err)
	}
	return string(account.UID) + "/" + string(node.UID), nil
}

// renew requests a token, writes it and returns when it must be renewed.
func (p Projection) renew(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: ptr.To(int64(tokenLifetime.Seconds())),
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	if p.Node != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: p.Node}
	}
	// Drop the monotonic clock reading: that clock stops while a laptop sleeps, and
	// tokens expire by the wall clock.
	began := time.Now().Round(0)
	reply, err := client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(ctx, p.ServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("requesting a token for %s/%s: %w", p.Namespace, p.ServiceAccount, err)
	}
	if err := os.MkdirAll(filepath.Dir(p.File), 0o700); err != nil {
		return time.Time{}, fmt.Errorf("writing a token: %w", err)
	}
	if err := writeFile(p.File, []byte(reply.Status.Token), 0o600); err != nil {
		return time.Time{}, err
	}
	lifetime := reply.Status.ExpirationTimestamp.Sub(began)
	return began.Add(time.Duration(float64(lifetime) * tokenRenewal)), nil
}

// newClient creates a client from a kubeconfig file, without the default rate limit,
// which is meant for controllers.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}
