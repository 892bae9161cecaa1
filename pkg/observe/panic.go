// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"fmt"
	"path"
	"runtime"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/check"
)

// Recovered makes a panic the error of the function that defers it: a fault in one of many parts must not end all of them.
func Recovered(err *error) {
	if p := recover(); p != nil {
		*err = check.WithHint(fmt.Errorf("panic: %v, at %s", p, panicked()), "report this fault of Fairlead, with the output of `fairlead version`")
	}
}

// panicked is the file and line of a panic, for the function that recovers from it.
func panicked() string {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for below := false; ; {
		f, more := frames.Next()
		switch inner := strings.HasPrefix(f.Function, "runtime.") || strings.HasPrefix(f.Function, "internal/runtime/"); {
		case inner:
			below = below || f.Function == "runtime.gopanic"
		case below:
			return fmt.Sprintf("%s:%d", path.Join(path.Base(path.Dir(f.File)), path.Base(f.File)), f.Line)
		}
		if !more {
			return "an unknown place"
		}
	}
}
