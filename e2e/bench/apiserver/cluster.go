// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
)

func (b *bench) cluster(ctx context.Context) error { return nil }
