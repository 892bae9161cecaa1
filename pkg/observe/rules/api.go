// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/fairlead-dev/fairlead/pkg/bundle/apiserver"
	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/bundle/scheduler"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

const groupAPI = "API server"

// reach is what every rule of the cluster needs.
const reach = "FL-API-001"

func apiRules() []Rule {
	return []Rule{
		{ID: reach, Group: groupAPI, Phase: Always, Title: "The API server answers and accepts the credentials", run: answers,
			Why: "Without the API server only files and processes of this machine can be checked.",
			Fix: "kubectl config view --minify; kubectl get --raw /readyz"},
		{ID: "FL-API-002", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "The API server is ready", run: ready,
			Why: "An API server that is not ready is out of its load balancer, and what it says about other parts may be old.",
			Fix: "kubectl get --raw '/readyz?verbose'"},
		{ID: "FL-API-003", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "Kubelets are not newer than the API server, nor too old", run: kubeletSkew,
			Why: "Kubernetes supports kubelets of the API server's minor version and of the three before. Other ones may fail in any call through the tunnel.",
			Fix: "Upgrade the API server before kubelets, and kubelets before they are four minor versions behind."},
		{ID: "FL-API-004", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "The client CA and the front proxy's CA are different", run: frontProxyCA,
			Why: "If they are the same, every client certificate with an allowed name can impersonate every user.",
			Fix: "Create a CA for the front proxy alone, and set kube-apiserver's --requestheader-client-ca-file to it."},
		{ID: "FL-API-005", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "The front proxy's names are limited", run: allowedNames,
			Why: "Without names, every certificate of the front proxy's CA can impersonate every user.",
			Fix: "Set kube-apiserver's --requestheader-allowed-names=front-proxy-client."},
		{ID: "FL-API-006", Group: groupAPI, Phase: Always, Title: "This machine's clock agrees with the API server's", run: ownClock,
			Why: "Tokens and certificates are valid for a time. A wrong clock makes them expired or not valid yet.",
			Fix: "timedatectl set-ntp true"},
		{ID: "FL-API-007", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "kube-apiserver verifies the certificates of kubelets", run: kubeletCA,
			Why: "Every agent is in the path between kube-apiserver and kubelets. Without verification an agent can impersonate any kubelet.",
			Fix: "Set kube-apiserver's --" + apiserver.KubeletCAFlag + "."},
		{ID: "FL-API-008", Group: groupAPI, Phase: Always, Title: "No proxy of the environment is in front of the API server", run: ownProxy,
			Why: "Many HTTP proxies end long requests such as exec and watch, and cannot reach a cluster's own addresses.",
			Fix: "export NO_PROXY=<host of the API server>"},
		{ID: "FL-API-009", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "This user may read what the checks read", run: readRights,
			Why: "Checks whose objects this user may not read are unknown.",
			Fix: "Use the kubeconfig of a cluster administrator."},
		{ID: "FL-API-010", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "The clocks of nodes agree with the API server's", run: nodeClocks,
			Why: "A node with a wrong clock refuses valid certificates, and its agents' tokens are refused.",
			Fix: "timedatectl set-ntp true   # on the node"},
		{ID: "FL-API-011", Group: groupAPI, Phase: Always, Needs: []string{reach}, Title: "Nodes are ready", run: nodesReady,
			Why: "No agent and no Pod runs on a node that is not ready.",
			Fix: "kubectl describe node <name>"},
		{ID: "FL-API-012", Group: groupAPI, Phase: After, Needs: []string{reach}, Title: "Operator, tunnel API and gateway have the rights they need", run: othersRights,
			Why: "Without a right the operator cannot install what a Bundle describes, and the tunnel API and the gateway refuse their clients.",
			Fix: "fairlead install -f bundle.yaml"},
	}
}

func answers(s *observe.Snapshot) ([]Finding, error) {
	if err := s.Reach.Err; err != nil {
		return one(s.Host, err.Error(), check.HintOf(err)), nil
	}
	return nil, nil
}

func ready(s *observe.Snapshot) ([]Finding, error) {
	text, err := s.Ready.Get()
	if err != nil {
		return nil, err
	}
	var bad []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			bad = append(bad, name)
		}
	}
	if len(bad) > 0 {
		return one(s.Host, "these parts of the API server are not ready: "+strings.Join(bad, ", "), ""), nil
	}
	return nil, nil
}

func kubeletSkew(s *observe.Snapshot) ([]Finding, error) {
	info, err := s.Version.Get()
	if err != nil {
		return nil, err
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("the API server's version: %w", err)
	}
	nodes, err := s.Nodes.Get()
	if err != nil {
		return nil, err
	}
	const older = 3
	var out []Finding
	for _, n := range nodes {
		kubelet, err := version.ParseGeneric(n.Status.NodeInfo.KubeletVersion)
		if err != nil || strings.HasPrefix(n.Status.NodeInfo.KubeletVersion, "kwok") {
			continue // simulated, or too new to have reported
		}
		if kubelet.Minor() > server.Minor() || kubelet.Minor()+older < server.Minor() {
			out = append(out, Finding{Object: "Node " + n.Name, Message: fmt.Sprintf("its kubelet is v%s, the API server v%s", kubelet, server)})
		}
	}
	return out, nil
}

func frontProxyCA(s *observe.Snapshot) ([]Finding, error) {
	data, err := s.Authentication.Get()
	if err != nil {
		return nil, err
	}
	const client, header = "client-ca-file", "requestheader-client-ca-file"
	if data[client] == "" || data[header] == "" {
		return nil, check.Skip("kube-apiserver has no client CA or no front proxy's CA")
	}
	clients, err := pki.ParseCerts([]byte(data[client]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", client, err)
	}
	headers, err := pki.ParseCerts([]byte(data[header]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", header, err)
	}
	if err := pki.VerifyDistinctCAs(clients, headers); err != nil {
		return one("ConfigMap kube-system/extension-apiserver-authentication", err.Error(), ""), nil
	}
	return nil, nil
}

func allowedNames(s *observe.Snapshot) ([]Finding, error) {
	data, err := s.Authentication.Get()
	if err != nil {
		return nil, err
	}
	if data["requestheader-client-ca-file"] == "" {
		return nil, check.Skip("kube-apiserver has no front proxy's CA")
	}
	if names := strings.TrimSpace(data["requestheader-allowed-names"]); names == "" || names == "[]" || names == `[""]` {
		return one("", "kube-apiserver has no --requestheader-allowed-names", ""), nil
	}
	return nil, nil
}

// maxSkew is the difference of clocks at which tokens and leases begin to suffer.
const maxSkew = 5 * time.Second

func ownClock(s *observe.Snapshot) ([]Finding, error) {
	c := s.Reach.Value
	switch {
	case !c.Dated && s.Reach.Err != nil:
		return nil, unmet(reach, Failed)
	case !c.Dated:
		return nil, errors.New("the API server's answer has no header Date")
	}
	if d := c.Skew.Abs(); d > maxSkew+c.Trip {
		return warn("", fmt.Sprintf("this machine's clock differs by %s from the API server's", d.Round(time.Second)), ""), nil
	}
	return nil, nil
}

func kubeletCA(s *observe.Snapshot) ([]Finding, error) {
	servers, err := s.APIServers.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, name := range sorted(servers) {
		if !apiserver.VerifiesKubelets(servers[name]) {
			out = append(out, Finding{Object: name, Message: apiserver.UnverifiedKubelets, Warning: true})
		}
	}
	return out, nil
}

func ownProxy(s *observe.Snapshot) ([]Finding, error) {
	proxy, err := s.Proxy.Get()
	if err != nil {
		return nil, err
	}
	if proxy != "" {
		return warn(s.Host, "the environment sends requests to it through "+proxy, "export NO_PROXY=$NO_PROXY,"+hostOf(s.Host)), nil
	}
	return nil, nil
}

func hostOf(address string) string {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	}
	rest, _, _ = strings.Cut(rest, "/")
	if i := strings.LastIndex(rest, ":"); i > strings.LastIndex(rest, "]") {
		rest = rest[:i]
	}
	return strings.Trim(rest, "[]")
}

func readRights(s *observe.Snapshot) ([]Finding, error) {
	denied, err := s.Denied.Get()
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, right := range denied {
		out = append(out, Finding{Message: "this user may not " + right, Fix: canI(right), Warning: true})
	}
	return out, nil
}

// canI is the command that asks for a right. kubectl takes what follows a slash for the name of an object, so that a subresource is a flag.
func canI(right string) string {
	a := observe.Attributes(right)
	resource := a.Resource
	if a.Group != "" {
		resource += "." + a.Group
	}
	out := "kubectl auth can-i " + a.Verb + " " + resource
	if a.Subresource != "" {
		out += " --subresource=" + a.Subresource
	}
	return out + " --all-namespaces"
}

// renewalLimit is how old a Lease of a ready node can be if its clock is right: kubelets renew every 10 s, and nodes are not ready after 50 s.
const renewalLimit = 60 * time.Second

func nodeClocks(s *observe.Snapshot) ([]Finding, error) {
	if s.Reach.Err != nil {
		return nil, s.Reach.Err
	}
	leases, err := s.NodeLeases.Get()
	if err != nil {
		return nil, err
	}
	nodes, err := s.Nodes.Get()
	if err != nil {
		return nil, err
	}
	now := observe.ReadAt(s, s.NodeLeases)
	var out []Finding
	for i := range nodes {
		n := &nodes[i]
		for _, l := range leases {
			if l.Name != n.Name || l.Spec.RenewTime == nil || !observe.NodeReady(n) {
				continue
			}
			ahead := l.Spec.RenewTime.Sub(now)
			if ahead > maxSkew || ahead < -renewalLimit {
				out = append(out, Finding{Object: "Node " + n.Name, Warning: true,
					Message: fmt.Sprintf("its Lease was renewed at %s by its own clock, when the API server had %s", clock(l.Spec.RenewTime.Time), clock(now))})
			}
		}
	}
	return out, nil
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }

func nodesReady(s *observe.Snapshot) ([]Finding, error) {
	nodes, err := s.Nodes.Get()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return warn("", "the cluster has no nodes", "kubectl get nodes"), nil
	}
	var out []Finding
	for i := range nodes {
		if !observe.NodeReady(&nodes[i]) {
			out = append(out, Finding{Object: "Node " + nodes[i].Name, Message: "it is not ready", Warning: true, Fix: "kubectl describe node " + nodes[i].Name})
		}
	}
	return out, nil
}

// schedulerVersion is of the programs that the bundle installs, "" if its image has no version.
func schedulerVersion(s *observe.Snapshot) string {
	return scheduler.KubernetesVersion(s.Bundle.Scheduler.Image)
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
