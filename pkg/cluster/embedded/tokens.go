package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
)

// Projection is a service-account token kept fresh in a file, as the kubelet
// does it for a projected volume.
type Projection struct {
	// Namespace and ServiceAccount say whose token it is.
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	// Audience is what the token is for; "" is the API server.
	Audience string `json:"audience,omitempty"`
	// Node is what the token is bound to; "" is nothing. A Pod's token names its
	// node, which the Konnectivity server holds an agent's identifiers against.
	Node string `json:"node,omitempty"`
	// File takes the token.
	File string `json:"file"`
}

// tokenLifetime is how long a token is asked for, and tokenRenewal the share of
// it after which it is renewed; both are the kubelet's.
const (
	tokenLifetime = time.Hour
	tokenRenewal  = 0.8
)

// projections lists the tokens of a cluster: one for every agent and every
// replica of the second scheduler.
func (p *plan) projections() []Projection {
	var list []Projection
	if p.tunnel() {
		agent := konnectivity.Agent(p.bundle)
		for i := range p.state.Agents {
			projection := Projection{
				Namespace: agent.Namespace, ServiceAccount: agent.ServiceAccount,
				Audience: p.bundle.Konnectivity.AuthenticationAudience, File: p.Token(agentName(i)),
			}
			if p.bundle.Konnectivity.Agent.Identifiers != "" { // else agents need not wait for the Node objects
				projection.Node = p.agentNode(i)
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
	return list
}

// projector keeps tokens fresh.
type projector struct {
	kubeconfig string
	list       []Projection
}

// run renews tokens until ctx ends. It begins before the API server answers
// and before the service accounts exist, so errors only lead to another try.
func (p projector) run(ctx context.Context) {
	due, failed := make([]time.Time, len(p.list)), make([]bool, len(p.list))
	var client kubernetes.Interface
	for {
		wait := 10 * time.Second
		for i, projection := range p.list {
			if time.Now().Before(due[i]) {
				continue
			}
			var err error
			if client == nil {
				client, err = newClient(p.kubeconfig)
			}
			if err == nil {
				due[i], err = projection.renew(ctx, client)
			}
			// Before the API server runs this fails some dozens of times: say it once.
			if err != nil && !failed[i] {
				klog.FromContext(ctx).Info("Token not renewed, will try again", "file", projection.File, "err", err)
			}
			if failed[i] = err != nil; failed[i] {
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

// renew asks for a token, writes it and returns when it has to be renewed.
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
	// Without the monotonic clock: it stands still while a laptop sleeps, and tokens
	// expire by the wall clock.
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

// newClient makes a client from a kubeconfig file, without the rate limit that
// is meant for controllers.
func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}
