// SPDX-License-Identifier: Apache-2.0

package clusterflags

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// Name is the flag --name of commands that work on any cluster: the short way to the
// context of a cluster that fairlead made. Empty means that it was not given.
type Name string

// AddFlag binds it.
func (n *Name) AddFlag(flags *pflag.FlagSet) {
	flags.Var(n, "name", "name of a cluster of \"fairlead up\"; selects the context "+cluster.ContextName("NAME"))
}

// Set refuses what is no cluster's name. An unset variable in a script must not mean
// the current context.
func (n *Name) Set(value string) error {
	if err := cluster.CheckName(value); err != nil {
		return err
	}
	*n = Name(value)
	return nil
}

func (n *Name) String() string { return string(*n) }

// Type implements pflag.Value.
func (n *Name) Type() string { return "string" }

// Resolve puts the context of the named cluster into kubeContext, the value of --context.
func (n *Name) Resolve(kubeContext *string) error {
	if *n == "" {
		return nil
	}
	name := cluster.ContextName(string(*n))
	if *kubeContext != "" && *kubeContext != name {
		return fmt.Errorf("--name %s selects context %s, but --context is %s: remove one of them", *n, name, *kubeContext)
	}
	*kubeContext = name
	return nil
}
