// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

func authenticates(s *observe.Snapshot) ([]Finding, error) {
	servers, _, err := pair(s)
	if err != nil {
		return nil, err
	}
	var out []Finding
	for _, p := range servers {
		if p.Flag("agent-namespace", "") == "" && p.Flag("cluster-ca-cert", "") == "" {
			out = append(out, Finding{Object: p.Name, Message: "it has neither --agent-namespace nor --cluster-ca-cert, so it accepts every agent"})
		}
	}
	return out, nil
}

// tokens returns the servers that demand tokens; it skips if none does.
func tokens(s *observe.Snapshot) (servers, agents []observe.Program, err error) {
	servers, agents, err = pair(s)
	if err != nil {
		return nil, nil, err
	}
	servers = slices.DeleteFunc(servers, func(p observe.Program) bool { return p.Flag("agent-namespace", "") == "" })
	if len(servers) == 0 {
		return nil, nil, check.Skip("servers do not ask agents for tokens")
	}
	return servers, agents, nil
}

// demand is something that a server expects of agents.
type demand struct {
	// verb is for several servers, verbs for one.
	verb, verbs string
	of          func(server observe.Program) string
	// has says what is not so with an agent; empty if it fits. It may work for now.
	has func(agent, server observe.Program) (text string, warning bool)
}

// unmet compares all agents with each server. What all servers expect alike is a finding of agents, and else one of the server, which differs from others.
func (d demand) unmet(servers, agents []observe.Program) []Finding {
	alike := !slices.ContainsFunc(servers, func(p observe.Program) bool { return d.of(p) != d.of(servers[0]) })
	if alike {
		servers = servers[:1]
	}
	var out []Finding
	for _, server := range servers {
		var of []Finding
		for _, a := range agents {
			text, warning := d.has(a, server)
			switch want := d.of(server); {
			case text == "":
			case alike:
				of = append(of, Finding{Object: a.Name, Message: fmt.Sprintf("%s, and servers %s %s", text, d.verb, want), Warning: warning})
			default:
				of = append(of, Finding{Object: server.Name, Message: fmt.Sprintf("it %s %s, unlike other servers; %s: %s", d.verbs, want, a.Name, text), Warning: warning})
			}
		}
		out = append(out, firstOf(of)...)
	}
	return out
}

func sameAudience(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tokens(s)
	if err != nil {
		return nil, err
	}
	audience := func(server observe.Program) string { return server.Flag("authentication-audience", "") }
	return demand{"demand", "demands", audience, func(a, server observe.Program) (string, bool) {
		if a.Pod == nil || audience(server) == "" {
			return "", false
		}
		has := audiences(a.Pod, a.Flag("service-account-token-path", ""))
		if len(has) == 0 || slices.Contains(has, audience(server)) {
			return "", false
		}
		return "its token has the audience " + strings.Join(has, ", "), false
	}}.unmet(servers, agents), nil
}

// audiences are those of the projected token that is mounted above a path.
func audiences(pod *corev1.Pod, path string) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, src := range v.Projected.Sources {
			if t := src.ServiceAccountToken; t != nil && strings.HasSuffix(path, "/"+t.Path) {
				out = append(out, t.Audience)
			}
		}
	}
	return out
}

func sameAccount(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tokens(s)
	if err != nil {
		return nil, err
	}
	return demand{"demand", "demands", func(server observe.Program) string { return demanded(server).String() }, func(a, server observe.Program) (string, bool) {
		want := demanded(server)
		if a.Pod == nil || a.Pod.Namespace == want.Namespace && (want.Name == "" || a.Pod.Spec.ServiceAccountName == want.Name) {
			return "", false
		}
		return fmt.Sprintf("it runs as %s/%s", a.Pod.Namespace, a.Pod.Spec.ServiceAccountName), false
	}}.unmet(servers, agents), nil
}

// demanded is the account that a server demands; its name is empty if every one of the namespace will do.
func demanded(server observe.Program) types.NamespacedName {
	return types.NamespacedName{Namespace: server.Flag("agent-namespace", ""), Name: server.Flag("agent-service-account", "")}
}

// accountExists looks at the account that servers demand, and at those that workloads of agents name: without it, none of their Pods is created.
func accountExists(s *observe.Snapshot) ([]Finding, error) {
	servers, _, err := tokens(s)
	workloads := s.Workloads(check.RoleAgent)
	if err != nil && (!check.IsSkip(err) || len(workloads) == 0) {
		return nil, err
	}
	all, err := s.Accounts.Get()
	if err != nil {
		return nil, err
	}
	for _, p := range servers {
		if want := demanded(p); want.Name != "" && !slices.Contains(all, want) {
			return one("ServiceAccount "+want.String(), p.Name+" demands it, and it does not exist", ""), nil
		}
	}
	for _, w := range workloads {
		if lacksAccount(s, w) {
			return one("ServiceAccount "+accountOf(w).String(), w.Object()+" names it, and it does not exist, so that no Pod of an agent can be created", ""), nil
		}
	}
	return nil, nil
}

func accountOf(w observe.Workload) types.NamespacedName {
	return types.NamespacedName{Namespace: w.Namespace, Name: cmp.Or(w.Template.Spec.ServiceAccountName, "default")}
}

func lacksAccount(s *observe.Snapshot, w observe.Workload) bool {
	return s.Accounts.Err == nil && !slices.Contains(s.Accounts.Value, accountOf(w))
}

// tokensReviewed judges the servers' right. Agents that are connected prove that servers have it, where it is not known who they are.
func tokensReviewed(s *observe.Snapshot) ([]Finding, error) {
	out, err := reviewed(ofTokens)(s)
	for i := range out {
		out[i].Fix = bindTo(s, out[i].Object)
	}
	assumed := slices.IndexFunc(s.Reviews.Value, func(r observe.Review) bool { return ofTokens(r) && r.Assumed && !r.Allowed })
	if assumed < 0 {
		return out, err
	}
	for _, name := range sorted(s.ServerMetrics) {
		if n, ok := observe.ConnectedAgents(s.ServerMetrics[name].Value); ok && n > 0 {
			return nil, nil
		}
	}
	who := s.Reviews.Value[assumed]
	return nil, fmt.Errorf("the kubeconfig of the servers cannot be read here: if its user is %s, it may not %s", who.Identity, who.Right)
}

func ofTokens(r observe.Review) bool {
	return r.Role == string(check.RoleServer) && r.Right == observe.ReviewTokens
}

// tunnelRights judges the other rights of servers and agents, as far as it is known who they are.
func tunnelRights(s *observe.Snapshot) ([]Finding, error) {
	var unknown []error
	out, err := reviewed(func(r observe.Review) bool {
		mine := (r.Role == string(check.RoleServer) || r.Role == string(check.RoleAgent)) && r.Right != observe.ReviewTokens
		if mine && r.Assumed && !r.Allowed {
			unknown = append(unknown, fmt.Errorf("the kubeconfig of the servers cannot be read here: if its user is %s, it may not %s", r.Identity, r.Right))
			return false
		}
		return mine
	})(s)
	for i := range out {
		if !installs(s, out[i].Object) {
			out[i].Fix = "Bind a Role with these rights to " + out[i].Object + "."
		}
	}
	if len(unknown) > 0 {
		return out, unknown[0]
	}
	return out, err
}

// installs reports whether an installation of the bundle gives the identity its rights.
func installs(s *observe.Snapshot, identity string) bool {
	if identity == konnectivity.ServerUser {
		return slices.ContainsFunc(s.Programs.Value, func(p observe.Program) bool { return p.Role == check.RoleServer && !p.Hosted && ours(p) })
	}
	return identity == "system:serviceaccount:"+s.Bundle.Namespace+":"+s.Bundle.Konnectivity.AgentServiceAccount
}

// othersRights judges the operator, the tunnel's API server and the gateway.
func othersRights(s *observe.Snapshot) ([]Finding, error) {
	out, err := refused(s.OtherReviews, func(observe.Review) bool { return true })
	for i := range out {
		if strings.HasSuffix(out[i].Object, ":"+operator.Name) {
			out[i].Fix = "fairlead install --operator"
		}
	}
	return out, err
}

// bindTo is the command that gives an identity the right to review tokens. Bundles have the binding of the user that they make.
func bindTo(s *observe.Snapshot, identity string) string {
	if identity == konnectivity.ServerUser && installs(s, identity) {
		return "fairlead install -f bundle.yaml"
	}
	const create = "kubectl create clusterrolebinding konnectivity-server-tokenreviews --clusterrole=system:auth-delegator "
	if account, ok := strings.CutPrefix(identity, "system:serviceaccount:"); ok {
		return create + "--serviceaccount=" + account
	}
	return create + "--user=" + identity
}

// reviewed lists the rights that a scheduler's, a server's or an agent's identity lacks.
func reviewed(which func(observe.Review) bool) func(*observe.Snapshot) ([]Finding, error) {
	return func(s *observe.Snapshot) ([]Finding, error) { return refused(s.Reviews, which) }
}

func refused(reviews observe.Fact[[]observe.Review], which func(observe.Review) bool) ([]Finding, error) {
	all, unread := reviews.Get()
	asked := false
	var out []Finding
	for _, r := range all {
		if !which(r) {
			continue
		}
		asked = true
		if !r.Allowed {
			out = withRefused(out, r)
		}
	}
	if !asked && unread == nil {
		return nil, check.Skip("no program with an identity of this kind is visible")
	}
	return out, unread
}

// withRefused adds a right that is refused: to the finding before, if that is about the same resource.
func withRefused(out []Finding, r observe.Review) []Finding {
	verb, resource, _ := strings.Cut(r.Right, " ")
	if n := len(out); n > 0 && out[n-1].Object == r.Identity {
		if verbs, same := strings.CutSuffix(out[n-1].Message, " "+resource); same {
			out[n-1].Message = verbs + " or " + verb + " " + resource
			return out
		}
	}
	return append(out, Finding{Object: r.Identity, Message: "it may not " + r.Right})
}
