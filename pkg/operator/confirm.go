// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// resources are those of the kinds that a look is made of.
var resources = map[string]string{kindBundle: "bundles", kindProfile: "schedulerprofiles", kindPool: "tunnelpools"}

// reading is all objects of a kind, as a look has read them.
type reading struct {
	kind  string
	state map[types.UID]state
}

// state tells whether an object is still the one that was read. Its status and its labels do not count.
type state struct {
	generation int64
	deleting   bool
}

func stateOf(o metav1.Object) state { return state{o.GetGeneration(), o.GetDeletionTimestamp() != nil} }

// read is a reading of objects.
func read[T any, P interface {
	*T
	metav1.Object
}](kind string, objects ...T) reading {
	r := reading{kind, map[types.UID]state{}}
	for i := range objects {
		o := P(&objects[i])
		r.state[o.GetUID()] = stateOf(o)
	}
	return r
}

// unchanged returns what the operator calls when it holds the lock, before it applies or deletes what it has made of the readings:
// it may have waited for the lock for long, and have read from a cache that was late. An error that [meanwhile] knows says that
// one of the objects has changed, or that there are others: the next look finds what is wanted now.
func unchanged(cfg *rest.Config, readings ...reading) func(context.Context) error {
	return func(ctx context.Context) error {
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			return err
		}
		for _, r := range readings {
			list, err := client.Resource(v1beta1.GroupVersion.WithResource(resources[r.kind])).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("read %s again: %w", resources[r.kind], err)
			}
			now := map[types.UID]state{}
			for i := range list.Items {
				if o := &list.Items[i]; r.kind != kindBundle || o.Name == bundle.ObjectName {
					now[o.UID] = stateOf(o)
				}
			}
			if !maps.Equal(now, r.state) {
				return fmt.Errorf("%s: %w", resources[r.kind], errChanged)
			}
		}
		return nil
	}
}
