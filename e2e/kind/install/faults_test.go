// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/e2e/harness"
	"github.com/fairlead-dev/fairlead/pkg/bundle/bundletest"
)

// journal is what an install keeps while it is at work.
const journal = "/etc/kubernetes/fairlead/journal.json"

// brokenServers installs bundles that cannot work on this node. Each time the
// command notices, rolls everything back by itself and reports the reason.
func brokenServers(ctx context.Context, t *testing.T, asBefore func(context.Context, *testing.T)) {
	for _, c := range []struct{ name, server, says string }{
		// No process listens there, so the connection fails at once.
		{"image", "image: 127.0.0.1:9/none/konnectivity-server:none", "ImagePull"},
		{"flag", "extraArgs: [{name: no-such-flag, value: 'true'}]", "unknown flag: --no-such-flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := "/root/broken-" + c.name + ".yaml"
			bundle := bundletest.File("konnectivity: {server: {" + c.server + "}}")
			if err := node().CommandContext(ctx, "sh", "-c", "cat >"+file).SetStdin(strings.NewReader(bundle)).Run(); err != nil {
				t.Fatal(err)
			}
			out, err := harness.Run(ctx, node(), "fairlead", "controlplane", "install", "-f", file, "--timeout", "40s")
			t.Log(out)
			if err == nil {
				t.Error("it was installed")
			}
			wantTexts(t, out, c.says, "everything was put back")
			asBefore(ctx, t)
		})
	}
}

// cutOff runs "fairlead controlplane install" and sends it a signal once it has
// changed kube-apiserver's manifest. It returns what was said, and the exit code.
func cutOff(ctx context.Context, t *testing.T, signal string) string {
	t.Helper()
	const script = `fairlead controlplane install & pid=$!
until grep -qs egress-selector-config-file /etc/kubernetes/manifests/kube-apiserver.yaml; do kill -0 $pid || break; sleep 0.05; done
kill -%s $pid; wait $pid; echo "ended with $?"`
	out, err := harness.Run(ctx, node(), "sh", "-c", fmt.Sprintf(script, signal))
	t.Logf("fairlead controlplane install, and SIG%s\n%s", signal, out)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// watchAPI calls the API server again and again. It returns a function that ends that and tells the longest time between two answers.
func watchAPI(ctx context.Context) func() time.Duration {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	answered, longest := time.Now(), time.Duration(0)
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			limited, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := suite.Client.CoreV1().Namespaces().Get(limited, metav1.NamespaceSystem, metav1.GetOptions{})
			cancel()
			if err == nil || ctx.Err() != nil {
				longest, answered = max(longest, time.Since(answered)), time.Now()
			}
		}
	}()
	return func() time.Duration {
		cancel()
		<-done
		return longest
	}
}

func wantTexts(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("it does not say %q:\n%s", text, out)
		}
	}
}
