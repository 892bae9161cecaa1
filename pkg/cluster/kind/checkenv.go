package kind

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/check/incluster"
	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// CheckEnv implements cluster.Provider.
func (p *Provider) CheckEnv(ctx context.Context, name string, config *rest.Config) (*check.Env, error) {
	pl, err := p.load(ctx, name)
	if err != nil {
		return nil, err
	}
	if config.Host != pl.state.serverURL() {
		return nil, nil // the name is ours, the cluster is another
	}
	env, err := incluster.NewEnv(config, pl.bundle, hostAddress(ctx, config))
	if err != nil {
		return nil, err
	}
	env.Cluster = cluster.ContextName(name)
	env.ServerMetrics = pl.serverMetrics
	if pl.state.ControlPlanes > 1 {
		env.APIServerMetrics = pl.apiServerMetrics
	}
	return env, nil
}

// hostAddress is this machine's address in the network of the nodes, from which
// Pods can be answered; "" where that is not known.
func hostAddress(ctx context.Context, config *rest.Config) string {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return ""
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil || len(nodes.Items) == 0 {
		return ""
	}
	for _, a := range nodes.Items[0].Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return incluster.OwnAddress("https://" + net.JoinHostPort(a.Address, strconv.Itoa(nodePort)))
		}
	}
	return ""
}

// serverMetrics asks every Konnectivity server on its own node: the way through
// the API server would itself go through the tunnel.
func (p *plan) serverMetrics(ctx context.Context) ([]byte, error) {
	url := fmt.Sprintf("http://127.0.0.1:%d/metrics", p.bundle.Konnectivity.Server.HealthPort)
	return p.onControlPlanes(ctx, "curl", "--silent", "--show-error", "--fail", "--max-time", "10", url)
}

// apiServerMetrics asks every API server on its own node: the load balancer
// leads to any of them.
func (p *plan) apiServerMetrics(ctx context.Context) ([]byte, error) {
	return p.onControlPlanes(ctx, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server="+loopbackURL(nodePort), "get", "--raw=/metrics")
}

// onControlPlanes runs a command in all control plane nodes, one after another,
// and returns what they printed.
func (p *plan) onControlPlanes(ctx context.Context, command string, args ...string) ([]byte, error) {
	library, err := p.library()
	if err != nil {
		return nil, err
	}
	all, err := library.ListNodes(kindName(p.Name))
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, want := range p.nodes() {
		for _, n := range all {
			if !want.controlPlane || n.String() != want.name {
				continue
			}
			var said bytes.Buffer
			if err := n.CommandContext(ctx, command, args...).SetStdout(&text).SetStderr(&said).Run(); err != nil {
				return nil, fmt.Errorf("node %s: %s: %w", want.name, bytes.TrimSpace(said.Bytes()), err)
			}
			text.WriteByte('\n')
		}
	}
	return text.Bytes(), nil
}
