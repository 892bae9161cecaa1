// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"time"
)

// poll calls f until it returns true or an error, or ctx ends.
func poll(ctx context.Context, every time.Duration, f func() (bool, error)) error {
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(every):
		}
	}
}
