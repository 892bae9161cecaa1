// SPDX-License-Identifier: Apache-2.0

// Package clusterflags is what commands that work on any cluster have in common:
// which cluster ([Flags]) and how preflight findings are shown ([Findings]).
package clusterflags

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/gateway/kubeconfig"
	"github.com/fairlead-dev/fairlead/pkg/install"
	"github.com/fairlead-dev/fairlead/pkg/internal/redact"
)

// Flags are kubectl's flags for the cluster to talk to, and --name.
type Flags struct {
	*genericclioptions.ConfigFlags
	name *Name
}

// New returns the flags with kubectl's defaults.
func New() Flags {
	flags := genericclioptions.NewConfigFlags(true)
	// The bundle sets the namespace, and discovery is too cheap for a cache on disk.
	flags.Namespace, flags.CacheDir = nil, nil
	return Flags{flags, new(Name)}
}

// AddFlags binds them.
func (f Flags) AddFlags(flags *pflag.FlagSet) {
	f.ConfigFlags.AddFlags(flags)
	f.name.AddFlag(flags)
}

// Cluster is one that answers.
type Cluster struct {
	Config *rest.Config
	// Context is the kubeconfig's, "" inside of a Pod.
	Context string
	// Namespace is the context's.
	Namespace string
}

// TakesCommand annotates commands whose arguments after "--" are a command to run.
const TakesCommand = "fairlead.dev/takes-command"

func (c Cluster) String() string {
	if c.Context == "" {
		return redact.Text(c.Config.Host)
	}
	return fmt.Sprintf("context %s (%s)", c.Context, redact.Text(c.Config.Host))
}

// Connect finds the cluster and makes sure that it answers. What client-go logs is
// silenced: errors say the same.
func (f Flags) Connect(ctx context.Context) (Cluster, error) {
	out, err := f.Load()
	if err != nil {
		return out, err
	}
	return out, Reach(ctx, out)
}

// Reach makes sure that a cluster answers.
func Reach(ctx context.Context, c Cluster) error {
	return withHint(check.Connect(ctx, &check.Env{Config: c.Config}))
}

// Load finds the cluster as Connect does, without talking to it.
func (f Flags) Load() (Cluster, error) {
	klog.SetLogger(logr.Discard())
	var out Cluster
	if err := f.name.Resolve(f.Context); err != nil {
		return out, err
	}
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return out, withHint(check.WithHint(fmt.Errorf("read kubeconfig: %w", err), "set the file with --kubeconfig"))
	}
	out.Context = raw.CurrentContext
	if *f.Context != "" {
		out.Context = *f.Context
	}
	if _, ok := raw.Contexts[out.Context]; !ok && !f.withoutContext() {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = *f.KubeConfig
		return out, withHint(NoContext(out.Context, raw, rules))
	}
	if err := CheckProxyURL(raw, out.Context, *f.ClusterName); err != nil {
		return out, err
	}
	if c := raw.Contexts[out.Context]; c != nil {
		name := cmp.Or(*f.ClusterName, c.Cluster)
		if raw.Clusters[name] == nil && *f.APIServer == "" { // client-go would try localhost:8080
			err := fmt.Errorf("context %q is for the cluster %q, which the kubeconfig does not have", out.Context, name)
			return out, withHint(check.WithHint(err, "correct the kubeconfig, or choose another context with --context"))
		}
		out.Namespace = c.Namespace
	}
	if out.Config, err = f.ToRESTConfig(); err != nil {
		return out, withHint(check.WithHint(fmt.Errorf("context %q: %w", out.Context, err), "kubectl config view"))
	}
	return out, nil
}

// CheckProxyURL refuses a proxy-url that is not valid, of a context's cluster or of the one that is chosen by its name. Call it
// before client-go, whose errors repeat the URL and its password.
func CheckProxyURL(raw clientcmdapi.Config, context, cluster string) error {
	if c := raw.Contexts[context]; c != nil {
		cluster = cmp.Or(cluster, c.Cluster)
	}
	if raw.Clusters[cluster] == nil || raw.Clusters[cluster].ProxyURL == "" {
		return nil
	}
	if _, err := kubeconfig.ParseProxyURL(raw.Clusters[cluster].ProxyURL); err != nil {
		return fmt.Errorf("context %q: proxy-url of cluster %q: %w", context, cluster, err)
	}
	return nil
}

// withoutContext reports whether a cluster is known without a kubeconfig.
func (f Flags) withoutContext() bool {
	if *f.Context != "" || *f.KubeConfig != "" {
		return false
	}
	_, err := rest.InClusterConfig()
	return *f.APIServer != "" || err == nil
}

// NoContextError is returned for a context that the kubeconfig does not have.
type NoContextError struct {
	// Name is the context's, "" if none is chosen.
	Name string
	// Empty means that the kubeconfig has no context at all, or that there is none.
	Empty bool
	text  string
}

func (e *NoContextError) Error() string { return e.text }

// NoContext says which contexts there are instead of the one of that name.
func NoContext(name string, raw clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	missing := &NoContextError{Name: name, Empty: len(raw.Contexts) == 0}
	if missing.Empty {
		missing.text = fmt.Sprintf("no kubeconfig with a context found (looked in %s)", files)
		return check.WithHint(missing, "create a cluster with `fairlead up`, or set a file with --kubeconfig")
	}
	missing.text = fmt.Sprintf("no context %q in the kubeconfig (%s)", name, files)
	if name == "" {
		missing.text = fmt.Sprintf("the kubeconfig (%s) has no current context", files)
	}
	return check.WithHint(missing, "--context takes one of: %s", strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
}

// withHint appends the hint to the error text, because the code that prints
// errors does not print hints.
func withHint(err error) error {
	if hint := check.HintOf(err); hint != "" {
		return fmt.Errorf("%w\nhint: %s", err, hint)
	}
	return err
}

// All ignores every finding.
const All = "all"

// Ignores reports whether a finding is among those to ignore.
func Ignores(ignore []string, id string) bool {
	return slices.ContainsFunc(ignore, func(i string) bool { // as in "version, lease"
		i = strings.TrimSpace(i)
		return i == id || i == All
	})
}

// Findings prints warnings, and those that are to be ignored, and makes an error of the others.
func Findings(out io.Writer, findings []install.Finding, ignore []string) error {
	var errs []error
	for _, f := range findings {
		if f.Warning || Ignores(ignore, f.ID) {
			_, _ = fmt.Fprintf(out, " ! %s\n", strings.ReplaceAll(f.String(), "\n", "\n   "))
			continue
		}
		errs = append(errs, fmt.Errorf("%s\n(to ignore this check, use --ignore-preflight-errors=%s)", f, f.ID))
	}
	return errors.Join(errs...)
}
