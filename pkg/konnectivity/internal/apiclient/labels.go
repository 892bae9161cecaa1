// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"errors"
	"fmt"
	"strings"
)

// ParseLabels reads "key=value,key=value".
func ParseLabels(s string) (map[string]string, error) {
	out := map[string]string{}
	if s == "" {
		return nil, errors.New("no labels given")
	}
	for _, pair := range strings.Split(s, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(v, "=") {
			return nil, fmt.Errorf("invalid label format: %s", pair)
		}
		out[strings.TrimSpace(k)] = strings.TrimSpace(v)
	}
	return out, nil
}
