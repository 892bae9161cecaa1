// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
func tokens(s *observe.Snapshot) (server observe.Program, agents []observe.Program, err error) {
	servers, agents, err := pair(s)
	if err != nil {
		return server, nil, err
	}
	for _, p := range servers {
		if p.Flag("agent-namespace", "") != "" {
			return p, agents, nil
		}
	}
	return server, nil, check.Skip("servers do not ask agents for tokens")
}

func sameAudience(s *observe.Snapshot) ([]Finding, error) {
	server, agents, err := tokens(s)
	if err != nil {
		return nil, err
	}
	want := server.Flag("authentication-audience", "")
	var out []Finding
	for _, a := range agents {
		if a.Pod == nil {
			continue
		}
		has := audiences(a.Pod, a.Flag("service-account-token-path", ""))
		if want != "" && len(has) > 0 && !slices.Contains(has, want) {
			out = append(out, Finding{Object: a.Name, Message: fmt.Sprintf("its token has the audience %s, and servers demand %s", strings.Join(has, ", "), want)})
		}
	}
	return firstOf(out), nil
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
	server, agents, err := tokens(s)
	if err != nil {
		return nil, err
	}
	space, account := server.Flag("agent-namespace", ""), server.Flag("agent-service-account", "")
	var out []Finding
	for _, a := range agents {
		if a.Pod == nil {
			continue
		}
		if a.Pod.Namespace != space || account != "" && a.Pod.Spec.ServiceAccountName != account {
			out = append(out, Finding{Object: a.Name, Message: fmt.Sprintf("it runs as %s/%s, and servers demand %s/%s", a.Pod.Namespace, a.Pod.Spec.ServiceAccountName, space, account)})
		}
	}
	return firstOf(out), nil
}

func accountExists(s *observe.Snapshot) ([]Finding, error) {
	server, _, err := tokens(s)
	if err != nil {
		return nil, err
	}
	all, err := s.Accounts.Get()
	if err != nil {
		return nil, err
	}
	want := types.NamespacedName{Namespace: server.Flag("agent-namespace", ""), Name: server.Flag("agent-service-account", "")}
	if want.Name != "" && !slices.Contains(all, want) {
		return one("ServiceAccount "+want.String(), "servers demand it, and it does not exist", ""), nil
	}
	return nil, nil
}

// reviewed lists the rights that a program's identity lacks.
func reviewed(role check.Role) func(*observe.Snapshot) ([]Finding, error) {
	return func(s *observe.Snapshot) ([]Finding, error) {
		all, err := s.Reviews.Get()
		if err != nil {
			return nil, err
		}
		asked := false
		var out []Finding
		for _, r := range all {
			if r.Role != string(role) {
				continue
			}
			asked = true
			if !r.Allowed {
				out = append(out, Finding{Object: r.Identity, Message: "it may not " + r.Right})
			}
		}
		if !asked {
			return nil, check.Skip("no program with an identity of this kind is visible")
		}
		return out, nil
	}
}
