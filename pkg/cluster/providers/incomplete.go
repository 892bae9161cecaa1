// SPDX-License-Identifier: Apache-2.0

package providers

import (
	"fmt"
	"io"

	"github.com/fairlead-dev/fairlead/pkg/cluster"
)

// incomplete is the status of a cluster whose state cannot be read.
type incomplete struct {
	cluster.Summary
	why error
}

func (i incomplete) Problem() string { return i.why.Error() }

func (i incomplete) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintf(w, "Cluster %s: %s\n", i.Name, i.why)
	return err
}
