// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
)

// TestWarningIsLogged: the program's log has the warning about agents that are not
// authenticated, whatever fails after that.
func TestWarningIsLogged(t *testing.T) {
	for _, c := range []struct {
		bind string
		want bool
	}{{"0.0.0.0", true}, {"127.0.0.1", false}} {
		// Not klog's CaptureState: it writes the verbosity, which goroutines of other tests may read.
		var out bytes.Buffer
		klog.LogToStderr(false)
		klog.SetOutput(&out)
		o := parse(t, "--cluster-cert=/no/cert", "--cluster-key=/no/key", "--agent-bind-address="+c.bind)
		err := o.listen(t.Context(), nil, server.NewMetrics()) // ends at the certificate, before it opens a listener
		klog.Flush()
		klog.SetOutput(io.Discard)
		klog.LogToStderr(true)
		if err == nil {
			t.Fatal("listens without a certificate")
		}
		if got := strings.Contains(out.String(), "Agents are not authenticated"); got != c.want {
			t.Errorf("bound to %s: logged %q, want the warning: %v", c.bind, out.String(), c.want)
		}
	}
}

// TestDefaultsOfReviews: with the defaults, tokens of connected agents are reviewed each 10
// minutes, and no hundred hosts with wrong tokens keep agents out.
func TestDefaultsOfReviews(t *testing.T) {
	c := parse(t, "--agent-namespace=n", "--agent-service-account=s", "--authentication-audience=a").config(nil, klog.Background())
	if c.ReviewInterval != 10*time.Minute {
		t.Errorf("tokens are reviewed each %v, want 10 minutes", c.ReviewInterval)
	}
	if c.MaxPerOwner != 0 {
		t.Errorf("limit of links per owner %d, want the server's own default", c.MaxPerOwner)
	}
	if reviewQPS < 50 || reviewBurst < reviewQPS {
		t.Errorf("%d reviews a second with a burst of %d, want at least 50", reviewQPS, reviewBurst)
	}
}
