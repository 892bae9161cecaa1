// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestIgnoredVersion: an unsupported version is an error that names the flag to ignore
// it, and with that flag a warning. The ID of another check does not help.
func TestIgnoredVersion(t *testing.T) {
	for _, tc := range []struct {
		ignore []string
		passes bool
	}{
		{nil, false}, {[]string{ServerCount, Agents}, false}, {[]string{Version}, true}, {[]string{All}, true},
	} {
		var warnings []string
		n := Node{Ignored: tc.ignore, Notef: func(format string, args ...any) {
			warnings = append(warnings, fmt.Sprintf(format, args...))
		}}
		n.Container = corev1.Container{Image: "registry.k8s.io/kube-apiserver:v1.30.2"}
		err := n.checkVersion()
		if tc.passes {
			if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "v1.30.2") {
				t.Errorf("%v: %v, warnings %q", tc.ignore, err, warnings)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "--ignore-preflight-errors=version") || len(warnings) > 0 {
			t.Errorf("%v: %v, warnings %q", tc.ignore, err, warnings)
		}
	}
}
