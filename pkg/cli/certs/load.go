// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"io"

	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// Loader reads a bundle configuration: file may be empty or "-".
type Loader func(file, root string, in io.Reader) (*v1alpha1.Bundle, error)
