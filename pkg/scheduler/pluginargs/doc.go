// SPDX-License-Identifier: Apache-2.0

// Package pluginargs holds the arguments of Fairlead's scheduler plugins: their types, defaults and validation, and
// the defaults of the scheduler that others compare with. It
// imports no clients and no scheduler, so the bundle checks a file with the same code with which the scheduler reads
// it.
//
// Start at [Decode]; each plugin has a file.
//
// +k8s:deepcopy-gen=package
package pluginargs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// Names of the plugins, as a profile enables them.
const (
	// TunnelReach keeps pods that the control plane must reach on nodes with a live tunnel agent.
	TunnelReach = "TunnelReach"
	// PolitePreemption is preemption that spares other schedulers' pods.
	PolitePreemption = "PolitePreemption"
	// ForeignNominations counts room that other schedulers have nominated.
	ForeignNominations = "ForeignNominations"
	// FailoverBarrier holds back a new leader until its caches have caught up.
	FailoverBarrier = "FailoverBarrier"
)

// DefaultMaxEventDelay is the longest that the scheduler holds an event back for bindings (--max-event-delay).
const DefaultMaxEventDelay = 15 * time.Second

// Names lists all plugins of Fairlead.
func Names() []string {
	return []string{TunnelReach, PolitePreemption, ForeignNominations, FailoverBarrier}
}

// ErrArgs is wrapped by all errors about arguments.
var ErrArgs = errors.New("invalid plugin arguments")

// Args are the arguments of one plugin.
type Args interface {
	runtime.Object
	// Default fills in what is not set.
	Default()
	// Validate checks defaulted arguments.
	Validate(p *field.Path) field.ErrorList
}

// New returns empty arguments for a plugin of Fairlead, nil for any other plugin.
func New(plugin string) Args {
	switch plugin {
	case TunnelReach:
		return &TunnelReachArgs{}
	case PolitePreemption:
		return &PolitePreemptionArgs{}
	case ForeignNominations:
		return &ForeignNominationsArgs{}
	case FailoverBarrier:
		return &FailoverBarrierArgs{}
	}
	return nil
}

// Decode reads what kube-scheduler hands to an out-of-tree plugin into args: nothing, or the file's bytes as a
// runtime.Unknown. Unknown and duplicate fields are errors. The result is defaulted and valid.
func Decode(obj runtime.Object, args Args) error {
	if errs := read(obj, args, field.NewPath("args")); len(errs) > 0 {
		return fmt.Errorf("%w: %w", ErrArgs, errs.ToAggregate())
	}
	return nil
}

// DecodeExtension reads arguments as they stand in a profile: bytes of a file, or an object made in Go.
func DecodeExtension(extension runtime.RawExtension, args Args) error {
	raw, err := json.Marshal(extension)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrArgs, err)
	}
	if string(raw) == "null" {
		raw = nil
	}
	return Decode(&runtime.Unknown{Raw: raw}, args)
}

// Check reads the arguments of a plugin of Fairlead and reports what is wrong with them, at p. It accepts the
// arguments of all other plugins.
func Check(plugin string, obj runtime.Object, p *field.Path) field.ErrorList {
	args := New(plugin)
	if args == nil {
		return nil
	}
	return read(obj, args, p)
}

func read(obj runtime.Object, args Args, p *field.Path) field.ErrorList {
	switch o := obj.(type) {
	case nil:
	case *runtime.Unknown:
		if len(o.Raw) == 0 {
			break
		}
		strict, err := kjson.UnmarshalStrict(o.Raw, args)
		if err != nil {
			return field.ErrorList{field.Invalid(p, string(o.Raw), fmt.Sprintf("cannot be read: %v; see the plugin's README for its fields", err))}
		}
		var errs field.ErrorList
		for _, problem := range strict {
			errs = append(errs, field.Invalid(p, string(o.Raw), fmt.Sprintf("%v; see the plugin's README for its fields", problem)))
		}
		if len(errs) > 0 {
			return errs
		}
	default:
		return field.ErrorList{field.Invalid(p, fmt.Sprintf("%T", obj), "is not what this plugin takes; see the plugin's README for its fields")}
	}
	args.Default()
	return args.Validate(p)
}

// schedulerNames refuses empty and repeated names of schedulers.
func schedulerNames(list []string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range list {
		switch {
		case name == "":
			errs = append(errs, field.Required(p.Index(i), "name a scheduler as pods do in spec.schedulerName"))
		case slices.Contains(list[:i], name):
			errs = append(errs, field.Duplicate(p.Index(i), name))
		}
	}
	return errs
}
