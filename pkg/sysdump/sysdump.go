// SPDX-License-Identifier: Apache-2.0

package sysdump

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/observe"
	"github.com/fairlead-dev/fairlead/pkg/observe/overview"
	"github.com/fairlead-dev/fairlead/pkg/observe/rules"
)

// Options bound the archive.
type Options struct {
	// MaxSize is the most that the archive holds before compression, LogSize the most of each log: the end of it.
	MaxSize, LogSize int64
	// Agents is how many agents' logs are read, those that are not ready first.
	Agents int
}

// Defaults of Options.
const (
	DefaultMaxSize = 64 << 20
	DefaultLogSize = 1 << 20
	DefaultAgents  = 20
)

// safe is for text that may quote anything.
func safe(text string) string { return redact.Text(text) }

// Write collects and writes the archive. When ctx ends it writes what it has, and the archive says what is missing.
func Write(ctx context.Context, t observe.Target, out io.Writer, o Options) (Manifest, error) {
	t.AgentMetrics = o.Agents
	o.LogSize = min(o.LogSize, o.MaxSize)
	s, err := observe.Collect(ctx, t)
	if err != nil {
		return Manifest{}, err
	}
	cfg := rest.CopyConfig(t.Config)
	cfg.QPS, cfg.Burst = 50, 100 // of logs, several are read at the same time
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return Manifest{}, err
	}
	a := newArchive(out, "fairlead-sysdump", s.Taken, o.MaxSize)
	a.manifest.Created, a.manifest.Cluster, a.manifest.Server = s.Taken.UTC().Format(time.RFC3339), s.Context, safe(s.Host)
	a.manifest.Version = version.Get().String()
	d := &dump{archive: a, s: s, client: client, o: o}
	// Events come before logs, which may hang, and are larger.
	for _, step := range []func(context.Context) error{d.checks, d.status, d.bundle, d.objects, d.resources, d.programs, d.configurations, d.metrics, d.events, d.logs} {
		if err := d.take(ctx, step); err != nil {
			return a.manifest, fmt.Errorf("write the archive: %w", err)
		}
	}
	return a.manifest, a.close()
}

type dump struct {
	*archive
	s      *observe.Snapshot
	client kubernetes.Interface
	o      Options
}

// take takes one step. If it panics, what it has not written is missing.
func (d *dump) take(ctx context.Context, step func(context.Context) error) error {
	var fault error
	err := func() error {
		defer observe.Recovered(&fault)
		return step(ctx)
	}()
	d.miss("a part of the archive", fault)
	return err
}

func (d *dump) checks(context.Context) error {
	return d.judged("check.json", rules.Judge(d.s, rules.Options{}))
}

func (d *dump) status(context.Context) error { return d.judged("status.json", overview.Of(d.s)) }

// judged adds results, whose messages quote the cluster.
func (d *dump) judged(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	return d.addJSON(name, scrub(plain))
}

// scrub passes every text of a value through safe.
func scrub(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = scrub(v[k])
		}
	case []any:
		for i := range v {
			v[i] = scrub(v[i])
		}
	case string:
		return safe(v)
	}
	return v
}

// addKind writes the allowed fields of all objects of a kind.
func addKind[T any](d *dump, kind string, fact observe.Fact[[]T]) error {
	if d.missed("objects/"+kind+".json", fact.Err) {
		return nil
	}
	out := []any{}
	for i := range fact.Value {
		v, err := pick(kind, &fact.Value[i])
		if err != nil {
			return err
		}
		out = append(out, v)
	}
	return d.addJSON("objects/"+kind+".json", out)
}

func (d *dump) objects(context.Context) error {
	s := d.s
	pods := observe.Known(s.Pending.Value)
	for _, p := range s.Programs.Value {
		if p.Pod != nil {
			pods.Value = append(pods.Value, *p.Pod)
		}
	}
	pods.Err = errors.Join(s.Programs.Err, s.Pending.Err)
	return errors.Join(
		addKind(d, "nodes", s.Nodes), addKind(d, "pods", pods), addKind(d, "deployments", s.Deployments), addKind(d, "daemonsets", s.DaemonSets),
		addKind(d, "leases", s.Leases), addKind(d, "poddisruptionbudgets", s.PDBs), addKind(d, "networkpolicies", s.Policies),
		addKind(d, "flowschemas", s.FlowSchemas), addKind(d, "certificatesigningrequests", s.CSRs),
		addKind(d, "mutatingwebhookconfigurations", s.Mutating), addKind(d, "validatingwebhookconfigurations", s.Validating),
		d.extensions(),
	)
}

// extensions are those kinds of which package observe keeps a few fields only.
func (d *dump) extensions() error {
	d.miss("objects/apiservices.json", d.s.APIServices.Err)
	d.miss("objects/customresourcedefinitions.json", d.s.CRDs.Err)
	services, crds := []any{}, []any{}
	for _, a := range d.s.APIServices.Value {
		services = append(services, map[string]any{"name": a.Name, "service": a.Service, "available": a.Available, "reason": a.Reason, "message": safe(a.Message)})
	}
	for _, c := range d.s.CRDs.Value {
		versions := []string{}
		for _, v := range c.Versions {
			versions = append(versions, v.Name)
		}
		crds = append(crds, map[string]any{"name": c.Name, "versions": versions, "storedVersions": c.Stored, "conversion": c.Strategy, "service": c.Service})
	}
	return errors.Join(d.addJSON("objects/apiservices.json", services), d.addJSON("objects/customresourcedefinitions.json", crds))
}

// programs are the programs that run, with the arguments on the list of flags.
func (d *dump) programs(context.Context) error {
	d.miss("programs.json", d.s.Programs.Err)
	type program struct {
		check.Program
		Image string `json:"image,omitempty"`
		Node  string `json:"node,omitempty"`
	}
	out := []program{}
	for _, p := range d.s.Programs.Value {
		entry := program{p.Program, p.Image, p.Node}
		entry.Problem, entry.Args = safe(p.Problem), safeArgs(p.Args, p.Pod == nil || len(p.Container.Command) > 0)
		out = append(out, entry)
	}
	return d.addJSON("programs.json", out)
}

func (d *dump) metrics(context.Context) error {
	all := map[string]observe.Fact[observe.Metrics]{"kube-apiserver": d.s.APIServerMetrics}
	for _, m := range []map[string]observe.Fact[observe.Metrics]{d.s.ServerMetrics, d.s.AgentMetrics, d.s.SchedulerMetrics} {
		for name, fact := range m {
			all[fileName(name)] = fact
		}
	}
	for name, fact := range all {
		if fact.Err != nil {
			d.miss("metrics/"+name+".txt", fact.Err)
			continue
		}
		var text bytes.Buffer
		if err := fact.Value.Text(&text); err != nil {
			d.miss("metrics/"+name+".txt", err)
			continue
		}
		if err := d.add("metrics/"+name+".txt", []byte(safe(text.String())), false); err != nil {
			return err
		}
	}
	return nil
}

// fileName makes one of "Pod kube-system/x".
func fileName(program string) string {
	return strings.NewReplacer("Pod ", "", "process ", "", "/", "_", " ", "_").Replace(program)
}
