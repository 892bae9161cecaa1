package verify

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Error is an error with the exit code that the process should end with.
type Error struct {
	// Code is 1 when a check failed, 2 for wrong usage or no connection.
	Code int
	Err  error
}

// Error includes the hint, because whoever prints it knows nothing of hints.
func (e *Error) Error() string {
	if hint := check.HintOf(e.Err); hint != "" {
		return e.Err.Error() + "\nhint: " + hint
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is for the main function.
func (e *Error) ExitCode() int { return e.Code }

func usage(format string, args ...any) error {
	return &Error{Code: 2, Err: fmt.Errorf(format, args...)}
}

// noContext says which contexts there are instead.
func noContext(name string, raw clientcmdapi.Config, rules *clientcmd.ClientConfigLoadingRules) error {
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	if len(raw.Contexts) == 0 {
		return check.WithHint(fmt.Errorf("no kubeconfig with a context found (looked in %s)", files), "make a cluster with `fairlead up`, or name a file with --kubeconfig")
	}
	names := make([]string, 0, len(raw.Contexts))
	for n := range raw.Contexts {
		names = append(names, n)
	}
	sort.Strings(names)
	if name == "" {
		return check.WithHint(fmt.Errorf("the kubeconfig (%s) has no current context", files), "--context takes one of: %s", strings.Join(names, ", "))
	}
	return check.WithHint(fmt.Errorf("no context %q in the kubeconfig (%s)", name, files), "--context takes one of: %s", strings.Join(names, ", "))
}
