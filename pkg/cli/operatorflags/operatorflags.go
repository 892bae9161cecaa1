// SPDX-License-Identifier: Apache-2.0

// Package operatorflags has the flags of commands that render or install the operator.
package operatorflags

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Names of the flags.
const (
	Namespace = "operator-namespace"
	Image     = "operator-image"
	Replicas  = "operator-replicas"

	// prefix of the operator's own flags.
	prefix = "operator-"
)

// Names are all flags.
var Names = append([]string{Namespace, Image, Replicas}, boundsNames()...)

func boundsNames() []string {
	var names []string
	for name := range operator.BoundsUsage {
		names = append(names, prefix+name)
	}
	slices.Sort(names)
	return names
}

// Flags are the values.
type Flags struct {
	namespace, image string
	replicas         int32
	bounds           operator.Bounds
}

// AddFlags binds them.
func (f *Flags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.namespace, Namespace, operator.DefaultNamespace, "namespace of the operator")
	flags.StringVar(&f.image, Image, v1alpha1.DefaultOperatorImage, "image of the operator")
	flags.Int32Var(&f.replicas, Replicas, operator.DefaultReplicas, "replicas of the operator; one reconciles, and all convert")
	f.bounds.AddFlags(flags, prefix)
}

// Options are the operator's options as the flags say.
func (f *Flags) Options() operator.Options {
	return operator.Options{Namespace: f.namespace, Image: f.image, Replicas: &f.replicas, Bounds: f.bounds}
}
