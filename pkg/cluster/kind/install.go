// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/gateway"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// bootstrapUser installs the bundle before kubeadm has created the permissions of
// its own administrator. The certificate is never written to disk and expires soon.
const (
	bootstrapUser     = "fairlead-bootstrap"
	bootstrapValidity = time.Hour
)

// bootstrapConfig works from the moment the API server starts.
func (p *plan) bootstrapConfig(ca pki.KeyPair, now time.Time) (*rest.Config, error) {
	cfg := pki.FromBundle(p.bundle)
	cfg.Validity = bootstrapValidity
	client, err := ca.Issue(cfg, pki.Request{CommonName: bootstrapUser, Organizations: []string{"system:masters"}, Usages: pki.ClientAuth}, now)
	if err != nil {
		return nil, err
	}
	key, err := client.KeyPEM()
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: p.state.serverURL(), QPS: -1, // no client-side rate limit: the default is noticeably slow
		TLSClientConfig: rest.TLSClientConfig{CAData: ca.CertPEM(), CertData: client.CertPEM(), KeyData: key},
	}, nil
}

// install waits for the API server and applies the bundle's objects.
func (p *plan) install(ctx context.Context, config *rest.Config) error {
	quick := rest.CopyConfig(config)
	quick.Timeout = 2 * time.Second
	client, err := kubernetes.NewForConfig(quick)
	if err != nil {
		return err
	}
	err = poll(ctx, 200*time.Millisecond, func() (bool, error) {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err == nil, nil
	})
	if err != nil {
		return err
	}
	// The API server may be unavailable again for a moment, because kubeadm is
	// still running.
	var last error
	err = poll(ctx, 500*time.Millisecond, func() (bool, error) {
		if last = p.applyOperator(ctx, config); last == nil {
			// The server of the APIService does not run yet; see tunnelAPIReady.
			last = p.applyBundle(ctx, config, func(o component.Object) bool { return !isAPIService(o) })
		}
		return last == nil || !transient(last), last
	})
	return errors.Join(last, err)
}

// poll calls f until it returns true or ctx ends; with true f's error is returned.
func poll(ctx context.Context, every time.Duration, f func() (bool, error)) error {
	for {
		if done, err := f(); done {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

// awaitReady waits until nodes and the bundle's workloads are ready, kube-apiserver
// accepts the kubelets' certificates, and the second scheduler has a leader.
func (p *plan) awaitReady(ctx context.Context, config *rest.Config, reporter progress.Reporter) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeoutCause(ctx, readyLimit, errNotReady)
	defer cancel()
	for _, step := range []struct {
		title string
		skip  bool
		check func(context.Context, kubernetes.Interface) (string, error)
	}{
		{"Waiting for nodes", false, p.nodesReady},
		{"Starting the tunnel: agents", !p.tunnel(), p.agentsReady},
		{"Verifying kubelets", false, p.kubeletsVerified},
		{"Starting the second scheduler", !p.secondScheduler(), p.schedulerReady},
		{"Starting the gateway", !gateway.Enabled(p.bundle), p.gatewayReady},
		{"Starting the tunnel's API server", !tunnelapi.Enabled(p.bundle), p.tunnelAPIReady(config)},
		{"Starting the operator", !p.state.Operator, p.operatorReady},
	} {
		if step.skip {
			continue
		}
		began := time.Now()
		err := progress.Step(reporter, step.title, func() (string, error) {
			result, err := await(limit, client, reporter, step.check)
			return result + ", " + since(began), err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step.title, err)
		}
	}
	return nil
}

// readyLimit is generous: images may have to be pulled.
const readyLimit = 5 * time.Minute

var errNotReady = errors.New("not ready in time")

// waitError is returned by a check as long as waiting may help.
type waitError string

func (n waitError) Error() string { return string(n) }

// await repeats a check until it succeeds; the check's last error explains a
// timeout.
func await(ctx context.Context, client kubernetes.Interface, reporter progress.Reporter, check func(context.Context, kubernetes.Interface) (string, error)) (string, error) {
	var result string
	var last error
	err := poll(ctx, 250*time.Millisecond, func() (bool, error) {
		result, last = check(ctx, client)
		var wait waitError
		if errors.As(last, &wait) || (last != nil && transient(last)) {
			reporter.Detail("%v", last)
			return false, nil
		}
		return true, last
	})
	if errors.Is(err, errNotReady) {
		return "", fmt.Errorf("%w after %v: %w", err, readyLimit, last)
	}
	return result, err
}
