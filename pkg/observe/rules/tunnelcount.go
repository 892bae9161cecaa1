// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/observe"
)

// counts are the numbers of servers that programs are told, by flag. Without the flag both programs count Leases or take one.
func counts(servers, agents []observe.Program) map[string][]string {
	out := map[string][]string{}
	for _, p := range slices.Concat(servers, agents) {
		if n := p.Flag("server-count", ""); n != "" && p.Flag("enable-lease-controller", p.Flag("count-server-leases", "false")) != "true" {
			out[n] = append(out[n], p.Name)
		}
	}
	return out
}

func serverCount(s *observe.Snapshot) ([]Finding, error) {
	servers, agents, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	if len(servers) == 0 {
		return nil, check.Skip("no server is visible")
	}
	told := counts(servers, agents)
	if len(told) == 0 {
		return nil, check.Skip("agents count the servers' Leases")
	}
	var out []Finding
	for _, n := range sorted(told) {
		number, err := strconv.Atoi(n)
		if err != nil || number != len(servers) {
			out = append(out, Finding{Object: told[n][0], Message: fmt.Sprintf("--server-count=%s, and %d servers run", n, len(servers)),
				Fix: fmt.Sprintf("konnectivity.server.count: %d", len(servers))})
		}
	}
	return out, nil
}

func serverLeases(s *observe.Snapshot) ([]Finding, error) {
	servers, _, err := tunnel(s)
	if err != nil {
		return nil, err
	}
	leases, err := s.Leases.Get()
	if err != nil {
		return nil, err
	}
	counting := slices.ContainsFunc(servers, func(p observe.Program) bool { return p.Flag("enable-lease-controller", "false") == "true" })
	if !counting {
		return nil, check.Skip("servers publish no Leases")
	}
	live := 0
	for i := range leases {
		if leases[i].Labels["k8s-app"] == "konnectivity-server" && valid(&leases[i], s) {
			live++
		}
	}
	if live != len(servers) {
		return one("", fmt.Sprintf("%d Leases of servers are valid, and %d servers run", live, len(servers)),
			fmt.Sprintf("kubectl -n %s get leases -l k8s-app=konnectivity-server", servers[0].Flag("lease-namespace", "kube-system"))), nil
	}
	return nil, nil
}

// valid tells whether a Lease has been renewed in time, by the API server's clock.
func valid(l *coordinationv1.Lease, s *observe.Snapshot) bool {
	if l.Spec.RenewTime == nil {
		return false
	}
	return !s.Taken.Add(-s.Reach.Value.Skew).After(l.Spec.RenewTime.Add(leaseDuration(l) + maxSkew))
}
