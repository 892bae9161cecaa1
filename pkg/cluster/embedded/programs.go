// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/cluster/process"
)

// programs returns the programs that checks look at, with the arguments that this version of fairlead starts them with.
func (p *parts) programs(ctx context.Context) ([]check.Program, error) {
	report, err := p.supervisor.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []check.Program
	add := func(role check.Role, spec process.Spec) {
		status, _ := report.Find(spec.Name)
		program := check.Program{Role: role, Name: "process " + spec.Name, Args: slices.Concat([]string{string(role)}, spec.Args), Ready: status.Ready, Restarts: status.Restarts, Local: true, LogFile: spec.LogFile}
		if !status.Ready {
			program.Problem = describe(status)
		}
		out = append(out, program)
	}
	add(check.RoleAPIServer, p.plan.apiServer())
	if p.plan.tunnel() {
		add(check.RoleServer, p.plan.tunnelServer())
		for i := range p.plan.state.Agents {
			add(check.RoleAgent, p.plan.tunnelAgent(i))
		}
	}
	for i := range p.plan.state.Schedulers {
		add(check.RoleScheduler, p.plan.secondScheduler(i))
	}
	return out, nil
}

// allSchedulerMetrics reads the metrics of every replica that answers.
func (p *parts) allSchedulerMetrics(ctx context.Context) (map[string][]byte, error) {
	out := map[string][]byte{}
	var last error
	for _, name := range p.schedulers() {
		text, err := p.schedulerMetrics(ctx, name)
		if err != nil {
			last = err
			continue
		}
		out["process "+name] = text
	}
	if len(out) > 0 {
		last = nil
	}
	return out, last
}

// schedulerMetrics reads the metrics of one replica.
func (p *parts) schedulerMetrics(ctx context.Context, name string) ([]byte, error) {
	ca, err := os.ReadFile(p.plan.PKI("ca.crt"))
	if err != nil {
		return nil, err
	}
	config := rest.CopyConfig(p.config)
	config.Host, config.CAData, config.CAFile = strings.TrimSuffix(p.plan.url("https", name, ""), "/"), ca, ""
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	return get(ctx, p.plan.url("https", name, "/metrics"), &http.Client{Transport: transport, Timeout: 10 * time.Second})
}
