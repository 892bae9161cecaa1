// SPDX-License-Identifier: Apache-2.0

// Package parallel makes several requests at the same time, so that a slow API server answers all of them within a limit.
package parallel

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Limit is how many requests run at the same time.
const Limit = 16

// Map calls f with each input and returns the results in the order of the inputs. The first error ends it.
func Map[In, Out any](ctx context.Context, inputs []In, f func(context.Context, In) (Out, error)) ([]Out, error) {
	out := make([]Out, len(inputs))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(Limit)
	for i, in := range inputs {
		all.Go(func() (err error) {
			out[i], err = f(ctx, in)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	return out, nil
}
