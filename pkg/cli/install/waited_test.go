// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	lock "github.com/fairlead-dev/fairlead/pkg/install"
)

// TestWaited: a run that has waited for another one does not replace the certificates that the other one has made.
func TestWaited(t *testing.T) {
	testutil.Full(t, "TestAgainstAPIServer of package install shows the same without the command")
	testutil.Limit(t, 3*time.Minute) // with eight busy loops
	cp := daemontest.TakeControlPlane(t)
	file := filepath.Join(t.TempDir(), "bundle.yaml")
	if err := os.WriteFile(file, []byte(bundletest.File("gateway: {enabled: true}")), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"install", "-f", file, "--wait=false", "--ignore-preflight-errors=all", "-o", "name"}
	var once sync.Once
	behind := daemontest.Proxy(t, cp.Kubeconfig, func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/leases/"+lock.LockName) {
			once.Do(func() {
				if _, errOut, code := run(t, args[0], append(args[1:], "--kubeconfig", cp.Kubeconfig)...); code != 0 {
					t.Errorf("the other run: exit code %d: %s", code, errOut)
				}
			})
		}
		return true
	})
	args[len(args)-1] = "json"
	out, errOut, code := run(t, args[0], append(args[1:], "--kubeconfig", behind)...)
	if code != 0 || !strings.Contains(out, `"unchanged"`) || strings.Contains(out, `"configured"`) || strings.Contains(out, `"created"`) {
		t.Errorf("exit code %d, %s\n%s", code, errOut, out)
	}
}
