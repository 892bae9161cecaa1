// SPDX-License-Identifier: Apache-2.0

package tunneltest

import (
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/promtext"
)

// Metric returns the value of a series, named as in the text format with all its
// labels, for example `links{protocol="fairlead"}`; 0 where there is none.
func Metric(r *promtext.Registry, series string) float64 {
	var b strings.Builder
	r.Write(&b)
	for line := range strings.Lines(b.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, _ := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return v
		}
	}
	return 0
}
