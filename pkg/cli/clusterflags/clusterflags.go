// Package clusterflags is what commands that work on any cluster have in common:
// which cluster ([Flags]), which bundle ([LoadBundle]) and how its preflight
// findings are shown ([Findings]).
package clusterflags

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/check"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// Flags are kubectl's flags for the cluster to talk to.
type Flags struct {
	*genericclioptions.ConfigFlags
}

// New returns the flags with kubectl's defaults.
func New() Flags {
	flags := genericclioptions.NewConfigFlags(true)
	// The bundle says which namespace, and discovery is not worth a cache on disk.
	flags.Namespace, flags.CacheDir = nil, nil
	return Flags{flags}
}

// AddFlags binds them.
func (f Flags) AddFlags(flags *pflag.FlagSet) { f.ConfigFlags.AddFlags(flags) }

// Cluster is one that answers.
type Cluster struct {
	Config *rest.Config
	// Context is the kubeconfig's, "" inside of a Pod.
	Context string
}

func (c Cluster) String() string {
	if c.Context == "" {
		return c.Config.Host
	}
	return fmt.Sprintf("context %s (%s)", c.Context, c.Config.Host)
}

// Connect finds the cluster and makes sure that it answers. What client-go logs is
// silenced: errors say the same.
func (f Flags) Connect(ctx context.Context) (Cluster, error) {
	klog.SetLogger(logr.Discard())
	var out Cluster
	raw, err := f.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return out, withHint(check.WithHint(fmt.Errorf("read kubeconfig: %w", err), "--kubeconfig names the file"))
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
	if out.Config, err = f.ToRESTConfig(); err != nil {
		return out, withHint(check.WithHint(fmt.Errorf("context %q: %w", out.Context, err), "kubectl config view"))
	}
	return out, withHint(check.Connect(ctx, &check.Env{Config: out.Config}))
}

// withoutContext tells whether a cluster is known without a kubeconfig.
func (f Flags) withoutContext() bool {
	if *f.Context != "" || *f.KubeConfig != "" {
		return false
	}
	_, err := rest.InClusterConfig()
	return *f.APIServer != "" || err == nil
}

// NoContext says which contexts there are instead of the one of that name.
func NoContext(name string, raw clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	if len(raw.Contexts) == 0 {
		return check.WithHint(fmt.Errorf("no kubeconfig with a context found (looked in %s)", files), "make a cluster with `fairlead up`, or name a file with --kubeconfig")
	}
	names := make([]string, 0, len(raw.Contexts))
	for n := range raw.Contexts {
		names = append(names, n)
	}
	slices.Sort(names)
	if name == "" {
		return check.WithHint(fmt.Errorf("the kubeconfig (%s) has no current context", files), "--context takes one of: %s", strings.Join(names, ", "))
	}
	return check.WithHint(fmt.Errorf("no context %q in the kubeconfig (%s)", name, files), "--context takes one of: %s", strings.Join(names, ", "))
}

// withHint puts the hint into the text: whoever prints the error knows nothing of hints.
func withHint(err error) error {
	if hint := check.HintOf(err); hint != "" {
		return fmt.Errorf("%w\nhint: %s", err, hint)
	}
	return err
}

// LoadBundle reads a configuration: "-" is standard input, "" the default bundle.
func LoadBundle(file string, in io.Reader) (*v1alpha1.Bundle, error) {
	var data []byte
	var err error
	switch file {
	case "":
	case "-":
		data, err = io.ReadAll(in)
	default:
		data, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	b, err := bundle.Load(data)
	if err != nil && file != "" {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return b, err
}

// All ignores every finding.
const All = "all"

// Findings prints warnings, and those that are to be ignored, and makes an error of the others.
func Findings(out io.Writer, findings []install.Finding, ignore []string) error {
	var errs []error
	for _, f := range findings {
		if f.Warning || slices.Contains(ignore, f.ID) || slices.Contains(ignore, All) {
			_, _ = fmt.Fprintf(out, " ! %s\n", strings.ReplaceAll(f.String(), "\n", "\n   "))
			continue
		}
		errs = append(errs, fmt.Errorf("%s\n(--ignore-preflight-errors=%s goes on all the same)", f, f.ID))
	}
	return errors.Join(errs...)
}
