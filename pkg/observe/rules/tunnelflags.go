// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const groupFlags = "Tunnel: both ends agree"

func tunnelFlagRules() []Rule {
	needs := []string{reach, complete}
	return []Rule{
		{ID: "FL-KON-020", Group: groupFlags, Phase: After, Needs: needs, Title: "kube-apiserver and server speak the same protocol", run: sameProtocol,
			Why: "kube-apiserver's GRPC needs --mode=grpc, and its HTTPConnect --mode=http-connect. Otherwise every call to a node fails.",
			Fix: "konnectivity.proxyProtocol: GRPC   # then fairlead controlplane install -f bundle.yaml on every control plane node"},
		{ID: "FL-KON-021", Group: groupFlags, Phase: After, Needs: needs, NotIf: []string{serversRun}, Title: "The server's certificate names the host that agents dial", run: sans,
			Why: "Agents refuse a certificate that does not name the server's host.",
			Fix: "Add the host to the certificate (kubeadm: certificate-sans.yaml), or set konnectivity.serverAddresses[0].host to a name in it."},
		{ID: "FL-KON-022", Group: groupFlags, Phase: After, Needs: needs, NotIf: []string{serversRun}, Title: "The agents' CA has signed the server's certificate", run: serverChain,
			Why: "Agents refuse a certificate of another CA.",
			Fix: "Set konnectivity.server.certFile and keyFile to a certificate of the cluster's CA."},
		{ID: "FL-KON-023", Group: groupFlags, Phase: After, Needs: needs, Title: "Agents dial the port on which servers listen", run: samePort,
			Why: "Agents that dial another port never connect.",
			Fix: "konnectivity.serverAddresses[0].port: 8132   # then install both sides again"},
		{ID: "FL-KON-024", Group: groupFlags, Phase: After, Needs: needs, Title: "Servers authenticate agents", run: authenticates,
			Why: "Without authentication any program that reaches the port can take over connections to nodes.",
			Fix: "Set --agent-namespace, --agent-service-account, --authentication-audience and --kubeconfig on the server."},
		{ID: "FL-KON-025", Group: groupFlags, Phase: After, Needs: needs, Title: "Agents' tokens have the audience that servers demand", run: sameAudience,
			Why: "The server refuses tokens of another audience, and the agents never connect.",
			Fix: "konnectivity.authenticationAudience: system:konnectivity-server   # then install both sides again"},
		{ID: "FL-KON-026", Group: groupFlags, Phase: After, Needs: needs, Title: "Agents run as the account that servers demand", run: sameAccount,
			Why: "The server refuses tokens of another ServiceAccount or namespace, and the agents never connect.",
			Fix: "konnectivity.agentServiceAccount: konnectivity-agent   # then install both sides again"},
		{ID: "FL-KON-027", Group: groupFlags, Phase: After, Needs: needs, Title: "The agents' ServiceAccount exists", run: accountExists,
			Why: "Without it no Pod of an agent is created.",
			Fix: "fairlead install -f bundle.yaml"},
		{ID: "FL-KON-028", Group: groupFlags, Phase: After, Needs: needs, Title: "Servers may review tokens", run: tokensReviewed,
			Why: "A server that may not create TokenReviews refuses every agent.",
			Fix: "fairlead install -f bundle.yaml; kubectl create clusterrolebinding <name> --clusterrole=system:auth-delegator --user=<user of the server's kubeconfig>   # for a server that no bundle installed"},
		{ID: "FL-KON-029", Group: groupFlags, Phase: After, Needs: needs, Title: "No NetworkPolicy cuts agents off", run: agentPolicies,
			Why: "A policy that selects agents and has egress rules must allow the servers, the cluster's DNS and every destination.",
			Fix: "kubectl get networkpolicies --all-namespaces"},
		{ID: "FL-KON-030", Group: groupFlags, Phase: After, Needs: needs, Title: "Servers choose among agents that can serve", run: strategies,
			Why: "With destHost or defaultRoute alone, servers use only agents that claim the destination.",
			Fix: "Add default to konnectivity.server.proxyStrategies, or set konnectivity.agent.identifiers."},
		{ID: "FL-KON-031", Group: groupFlags, Phase: After, Needs: needs, Title: "Broken connections are noticed soon", run: keepalive,
			Why: "Upstream's programs send keepalives each hour. Until then calls go to agents whose node is gone.",
			Fix: "--keepalive-time=30s   # on the agents, and --frontend-keepalive-time=30s on the server"},
		{ID: "FL-KON-032", Group: groupFlags, Phase: After, Needs: needs, Title: "Server and agents are of one release", run: oneRelease,
			Why: "Releases that are far apart are not tested together.",
			Fix: "fairlead install -f bundle.yaml; fairlead controlplane install -f bundle.yaml"},
		{ID: "FL-KON-033", Group: groupFlags, Phase: After, Needs: needs, Title: "Agents are critical Pods", run: agentPriority,
			Why: "A node under pressure evicts Pods without priority first, and the API server then loses its way to nodes.",
			Fix: "priorityClassName: system-cluster-critical   # in the Pod template of the agents"},
		{ID: "FL-KON-034", Group: groupFlags, Phase: After, Needs: needs, Title: "Servers and agents may use Leases and read nodes", run: tunnelRights,
			Why: "With lease counting, a server without its rights has no Lease, and an agent without its rights connects to one server only. A server that may not read nodes refuses agents with identifiers.",
			Fix: "fairlead install -f bundle.yaml"},
	}
}

// pair returns both ends, and skips where one is not visible.
func pair(s *observe.Snapshot) (servers, agents []observe.Program, err error) {
	servers, agents, err = tunnel(s)
	if err != nil {
		return nil, nil, err
	}
	if len(servers) == 0 {
		return nil, nil, check.Skip("no server is visible: it runs outside of the cluster")
	}
	return servers, agents, nil
}

func sameProtocol(s *observe.Snapshot) ([]Finding, error) {
	servers, _, err := pair(s)
	if err != nil {
		return nil, err
	}
	m, err := s.APIServerMetrics.Get()
	if err != nil {
		return nil, err
	}
	used := m.Values(observe.MetricEgressStart, "protocol")
	if len(used) == 0 {
		return nil, check.Skip("this API server has dialed nothing through the tunnel yet")
	}
	var out []Finding
	for _, p := range servers {
		mode := p.Flag("mode", "grpc")
		if !speaks(used, mode) {
			out = append(out, Finding{Object: p.Name, Message: fmt.Sprintf("it has --mode=%s, and kube-apiserver speaks %s", mode, strings.Join(sorted(used), ", "))})
		}
	}
	return out, nil
}

// speaks compares without punctuation: kube-apiserver's label is http_connect, the flag http-connect.
func speaks(used map[string]float64, mode string) bool {
	plain := func(t string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(t)) }
	for u := range used {
		if plain(u) == plain(mode) {
			return true
		}
	}
	return false
}

// shownLeafs calls judge with each server's certificate and each host that agents dial.
func shownLeafs(s *observe.Snapshot, judge func(server string, chain []*x509.Certificate, hosts []string) *Finding) ([]Finding, error) {
	_, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, a := range agents {
		if h := a.Flag("proxy-server-host", "127.0.0.1"); !slices.Contains(hosts, h) && !strings.Contains(h, "$(") {
			hosts = append(hosts, h)
		}
	}
	var out []Finding
	var dark unread
	for _, name := range sorted(s.Shown) {
		chain, err := s.Shown[name].Get()
		if err == nil && len(chain) == 0 {
			err = errors.New("it shows no certificate")
		}
		if err != nil {
			dark.add(name, err)
			continue
		}
		if f := judge(name, chain, hosts); f != nil {
			out = append(out, *f)
		}
	}
	return out, dark.err()
}

func sans(s *observe.Snapshot) ([]Finding, error) {
	return shownLeafs(s, func(server string, chain []*x509.Certificate, hosts []string) *Finding {
		for _, h := range hosts {
			if err := chain[0].VerifyHostname(h); err != nil {
				return &Finding{Object: server, Message: fmt.Sprintf("agents dial %s, and its certificate names %s", h, namesIn(chain[0])),
					Fix: "certSANs: [" + h + "]   # of apiServer in kubeadm's ClusterConfiguration, then kubeadm init phase certs apiserver"}
			}
		}
		return nil
	})
}

func namesIn(c *x509.Certificate) string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no host"
	}
	return strings.Join(names, ", ")
}

func serverChain(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(agents, func(a observe.Program) bool { return !trustsCluster(a) }); i >= 0 && !slices.ContainsFunc(agents, trustsCluster) {
		return nil, check.Skip("agents do not trust the cluster's CA, but %s", cmp.Or(agents[i].Flag("ca-cert", ""), "those of their image"))
	}
	cas, err := s.ClusterCAs.Get()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca)
	}
	return shownLeafs(s, func(server string, chain []*x509.Certificate, _ []string) *Finding {
		between := x509.NewCertPool()
		for _, c := range chain[1:] {
			between.AddCert(c)
		}
		// The expiry has a rule of its own.
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: chain[0].NotBefore.Add(time.Second)})
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) {
			return &Finding{Object: server, Message: fmt.Sprintf("its certificate is of %q, which is not the cluster's CA (%s)", chain[0].Issuer.CommonName, cas[0].Subject.CommonName)}
		}
		return nil
	})
}

// trustsCluster reports whether an agent's --ca-cert is the cluster's CA, as far as its Pod shows that. Processes of a local cluster have no other.
func trustsCluster(a observe.Program) bool {
	file := a.Flag("ca-cert", "")
	if a.Pod == nil {
		return true
	}
	volume, below := observe.MountOf(a, file)
	switch {
	case volume == nil: // the volume of the ServiceAccount's token is in running Pods alone, not in templates
		return file == serviceAccountCA
	case volume.ConfigMap != nil:
		return volume.ConfigMap.Name == clusterCA
	case volume.Projected != nil:
		return slices.ContainsFunc(volume.Projected.Sources, func(src corev1.VolumeProjection) bool {
			return src.ConfigMap != nil && src.ConfigMap.Name == clusterCA && (len(src.ConfigMap.Items) == 0 || slices.ContainsFunc(src.ConfigMap.Items, func(k corev1.KeyToPath) bool { return k.Path == below }))
		})
	case volume.Secret != nil:
		return strings.HasPrefix(file, path.Dir(serviceAccountCA)+"/") // a token of the old kind
	}
	return false
}

const (
	// serviceAccountCA is where Pods find the cluster's CA, clusterCA the ConfigMap that it comes from.
	serviceAccountCA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	clusterCA        = "kube-root-ca.crt"
)

func samePort(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	port := func(server observe.Program) string { return server.Flag("agent-port", observe.DefaultAgentPort) }
	return demand{"listen on", "listens on", port, func(a, server observe.Program) (string, bool) {
		dialed := a.Flag("proxy-server-port", observe.DefaultAgentPort)
		if dialed == port(server) {
			return "", false
		}
		// Behind a load balancer ports may differ; ours and the documentation's are the server's own.
		return "it dials port " + dialed, a.Flag("proxy-server-host", "") != s.Bundle.Konnectivity.ServerHost && !a.Local
	}}.unmet(servers, agents), nil
}

// firstOf keeps one finding of many Pods of the same template.
func firstOf(all []Finding) []Finding {
	if len(all) > 1 {
		all[0].Message += fmt.Sprintf(" (and %d more Pods)", len(all)-1)
		return all[:1]
	}
	return all
}

func agentPolicies(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	policies, err := s.Policies.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for i := range policies {
		p := &policies[i]
		if !slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || opensAll(p) || !selectsAny(&p.Spec.PodSelector, p.Namespace, agents) {
			continue
		}
		out = append(out, Finding{Object: "NetworkPolicy " + p.Namespace + "/" + p.Name, Warning: true,
			Message: "it limits where agents connect to: servers and every destination must be in its egress rules",
			Fix:     fmt.Sprintf("kubectl -n %s describe networkpolicy %s", p.Namespace, p.Name)})
		if len(p.Spec.Egress) == 0 {
			out[len(out)-1].Warning = false
			out[len(out)-1].Message = "it selects agents and allows them no connection"
		}
	}
	return out, nil
}

// opensAll reports whether a policy has a rule that allows everything.
func opensAll(p *networkingv1.NetworkPolicy) bool {
	return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return len(r.To) == 0 && len(r.Ports) == 0 })
}

// selectsAny ignores Pods on the host network, which policies do not reach.
func selectsAny(selector *metav1.LabelSelector, namespace string, programs []observe.Program) bool {
	sel, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(programs, func(p observe.Program) bool {
		return p.Pod != nil && !p.Pod.Spec.HostNetwork && p.Pod.Namespace == namespace && sel.Matches(labels.Set(p.Pod.Labels))
	})
}

func strategies(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(agents, func(a observe.Program) bool { return a.Flag("agent-identifiers", "") != "" }) {
		return nil, nil
	}
	var out []Finding
	for _, p := range servers {
		chosen := p.Flag("proxy-strategies", "default")
		if !slices.Contains(strings.Split(chosen, ","), "default") {
			out = append(out, Finding{Object: p.Name, Message: "--proxy-strategies=" + chosen + " needs agents with --agent-identifiers, and none has"})
		}
	}
	return out, nil
}

func keepalive(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, a := range agents {
		d, err := time.ParseDuration(a.Flag("keepalive-time", "1h"))
		if ours(a) || err == nil && d <= 5*time.Minute {
			continue
		}
		out = append(out, Finding{Object: a.Name, Message: "it sends keepalives only each " + d.String() + " (--keepalive-time)", Warning: true})
	}
	return firstOf(out), nil
}

func oneRelease(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := pair(s)
	if err != nil {
		return nil, err
	}
	tags := map[string]string{}
	for _, p := range slices.Concat(servers, agents) {
		if tag := observe.ImageTag(p.Image); tag != "" {
			tags[tag] = p.Name
		}
	}
	if len(tags) > 1 {
		var parts []string
		for _, t := range sorted(tags) {
			parts = append(parts, tags[t]+" has "+t)
		}
		return warn("", strings.Join(parts, ", "), ""), nil
	}
	return nil, nil
}

func agentPriority(s *observe.Snapshot) ([]Finding, error) {
	_, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, a := range agents {
		if a.Pod != nil && !strings.HasPrefix(a.Pod.Spec.PriorityClassName, "system-") {
			out = append(out, Finding{Object: a.Name, Message: "its priorityClassName is " + quoted(a.Pod.Spec.PriorityClassName), Warning: true})
		}
	}
	return firstOf(out), nil
}

func quoted(t string) string {
	if t == "" {
		return "not set"
	}
	return t
}
