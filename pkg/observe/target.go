// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
)

// ProbeLimit bounds each single source.
const ProbeLimit = 10 * time.Second

// Target says what to look at.
type Target struct {
	// Config reaches the API server.
	Config *rest.Config
	// Context names the cluster for people.
	Context string
	// Bundle gives the names of the parts; nil is the default bundle.
	Bundle *v1alpha1.Bundle
	// Env is what the provider of a local cluster knows; nil for any other cluster.
	Env *check.Env
	// Before also reads what matters before an installation of Bundle.
	Before bool
	// Brief leaves out what only checks need: webhooks, rights, certificates of files, and the like.
	Brief bool
	// Scheduled is a count of Pods to keep from an earlier look, because counting reads every Pod; nil counts them.
	Scheduled *Fact[Scheduled]
	// AgentMetrics is from how many agents metrics are read.
	AgentMetrics int
	// Limit bounds each source; 0 is ProbeLimit.
	Limit time.Duration
	// Root is prepended to paths of this machine. For tests.
	Root string
}

// Collect reads everything. It fails only if cfg makes no client: what cannot be read is in the Facts. It ends within a few times
// Target.Limit, whatever hangs.
func Collect(ctx context.Context, t Target) (*Snapshot, error) {
	if t.Limit <= 0 {
		t.Limit = ProbeLimit
	}
	b := t.Bundle
	if b == nil && t.Env != nil {
		b = t.Env.Bundle
	}
	if b == nil {
		b = &v1alpha1.Bundle{}
	}
	b = b.Defaulted()
	cfg := rest.CopyConfig(t.Config)
	cfg.QPS, cfg.Burst = 200, 400
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	c := &collector{Target: t, cfg: cfg, client: client, s: &Snapshot{
		Taken: time.Now(), Context: t.Context, Host: cfg.Host, Bundle: b, Names: incluster.NamesOf(b),
		ServerMetrics: map[string]Fact[Metrics]{}, AgentMetrics: map[string]Fact[Metrics]{}, SchedulerMetrics: map[string]Fact[Metrics]{},
		Shown: map[string]Fact[[]certificate]{}, Kubelets: map[string]error{}, Crashes: map[string]string{},
	}}
	c.run(ctx)
	return c.s, nil
}
