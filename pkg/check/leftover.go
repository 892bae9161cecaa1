// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Leftover is a part that an earlier run stopped and did not put back, because it was killed before it could.
type Leftover struct {
	// What names the part for people.
	What string
	// Remedy is the command that puts it back by hand.
	Remedy string
	// Restore puts it back, and returns once it runs.
	Restore func(ctx context.Context) error
}

const leftoverID = "leftover"

// leftoverCheck looks for what earlier runs left behind. The check that it returns is only made when there is something to say; a disruptive run
// puts the parts back, any other fails and says how to, because with a part missing the other checks mislead.
func leftoverCheck(ctx context.Context, env *Env, opts Options) (Check, bool) {
	if env.Leftovers == nil {
		return Check{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, err := env.Leftovers(ctx)
	if err == nil && len(found) == 0 {
		return Check{}, false
	}
	return Check{
		ID: leftoverID, Title: "No component is left stopped by an earlier run", Timeout: 2 * time.Minute, Hint: "inspect the components by hand",
		Run: func(ctx context.Context, s *Scope) error {
			if err != nil {
				return fmt.Errorf("look for what an earlier run left stopped: %w", err)
			}
			if !opts.Disruptive {
				return leftBehind(found)
			}
			return s.restore(ctx, found)
		},
	}, true
}

func leftBehind(found []Leftover) error {
	var what, remedies []string
	for _, l := range found {
		what, remedies = append(what, l.What), append(remedies, l.Remedy)
	}
	return WithHint(fmt.Errorf("an earlier run with --disruptive stopped %s and was killed before it restored that (or it still runs)", strings.Join(what, " and ")),
		"run again with --disruptive, which restores it first, or: %s", strings.Join(remedies, "; "))
}

func (s *Scope) restore(ctx context.Context, found []Leftover) error {
	var errs []error
	var restored []string
	for _, l := range found {
		if err := l.Restore(ctx); err != nil {
			errs = append(errs, WithHint(fmt.Errorf("restore %s: %w", l.What, err), "%s", l.Remedy))
			continue
		}
		restored = append(restored, l.What)
	}
	if len(restored) > 0 {
		s.Detail("restored", "%s, which an earlier run had stopped and not restored", strings.Join(restored, " and "))
	}
	return errors.Join(errs...)
}
