// SPDX-License-Identifier: Apache-2.0

package components

import (
	"fmt"

	"golang.org/x/mod/modfile"
)

// GoVersion is the oldest Go version that builds the components, without the
// leading "go", for example "1.26.0".
func GoVersion() string {
	mod, err := modfile.ParseLax("components.mod", modFile, nil)
	if err != nil || mod.Go == nil {
		panic(fmt.Sprintf("embedded components.mod: no go line: %v", err)) // checked by this package's tests
	}
	return mod.Go.Version
}
