// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Guard stands above a watch cache. A watch from a resource version that the store has not reached would show nothing
// until the store has reached it, which is never if the resource version comes from a process that started later.
// Guard answers such a watch with a timeout. It names no time to try again: client-go would repeat the request for that
// time ten times, and show no events meanwhile, before it lists again.
//
// A resource version that is no number is a bad request. The watch cache returns an error for it that would be answered
// with status 500.
//
// The watch cache waits for seconds until it reaches the resource version of a continue token. Guard answers the page of a
// store that was made later at once: see expired.
type Guard struct{ storage.Interface }

// GetList implements storage.Interface.
func (g Guard) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.Predicate.Continue == "" || !opts.Recursive {
		return g.Interface.GetList(ctx, key, opts, list)
	}
	from, wanted, err := storage.DecodeContinue(opts.Predicate.Continue, key)
	if err != nil {
		return g.Interface.GetList(ctx, key, opts, list) // which says what is wrong
	}
	rv, err := g.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	if wanted > 0 && uint64(wanted) > rv {
		return expired(true, from, key)
	}
	return g.Interface.GetList(ctx, key, opts, list)
}

// Get implements storage.Interface.
func (g Guard) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if _, err := versioner.ParseResourceVersion(opts.ResourceVersion); err != nil {
		return badVersion(err)
	}
	return g.Interface.Get(ctx, key, opts, out)
}

// Watch implements storage.Interface.
func (g Guard) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	want, err := versioner.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, badVersion(err)
	}
	if want > 0 {
		rv, err := g.GetCurrentResourceVersion(ctx)
		if err != nil {
			return nil, err
		}
		if want > rv {
			return nil, storage.NewTooLargeResourceVersionError(want, rv, 0)
		}
	}
	return g.Interface.Watch(ctx, key, opts)
}
