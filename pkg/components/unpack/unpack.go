// SPDX-License-Identifier: Apache-2.0

// Package unpack writes the module that builds the components. It is apart from package
// components because the bundle takes versions from there and must not touch files.
package unpack

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead-dev/fairlead/pkg/components"
)

// Into writes the module into dir, which must exist. Then, in dir and with
// components.Environ added to the environment,
//
//	go build <components.Flags()...> -ldflags <c.LDFlags> -o <file> <c.Package>
//
// builds component c.
func Into(dir string) error {
	mod, sum := components.Module()
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return fmt.Errorf("unpack the components' module: %w", err)
		}
	}
	return nil
}
