// SPDX-License-Identifier: Apache-2.0

package memstore

import (
	"context"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
)

// Guard stands above a watch cache. A watch from a resource version that the store has not reached would show nothing
// until the store has reached it, which is never if the resource version comes from a process that started later.
// Guard answers such a watch with a timeout. It names no time to try again: client-go would repeat the request for that
// time ten times, and show no events meanwhile, before it lists again.
type Guard struct{ storage.Interface }

// Watch implements storage.Interface.
func (g Guard) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	if opts.ResourceVersion != "" && opts.ResourceVersion != "0" {
		rv, err := g.GetCurrentResourceVersion(ctx)
		if err != nil {
			return nil, err
		}
		if want, err := versioner.ParseResourceVersion(opts.ResourceVersion); err == nil && want > rv {
			return nil, storage.NewTooLargeResourceVersionError(want, rv, 0)
		}
	}
	return g.Interface.Watch(ctx, key, opts)
}
