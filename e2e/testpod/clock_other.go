// SPDX-License-Identifier: Apache-2.0

//go:build !(linux && amd64)

package main

import (
	"context"
	"errors"
	"fmt"
)

func clock(context.Context, []string) error {
	return fmt.Errorf("a program with a clock of its own: %w: use linux/amd64", errors.ErrUnsupported)
}

func enterClock([]string) error { return errors.ErrUnsupported }
