// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/gateway"
	"github.com/fairlead-dev/fairlead/pkg/internal/httpconnect"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/internal/collect"
)

// TestDialErrorReasons: when the time is over, the destination is the cause only if the servers answer. Clients try another
// agent for path-down.
func TestDialErrorReasons(t *testing.T) {
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	for name, c := range map[string]struct {
		err  error
		want gateway.Reason
	}{
		"silent destination":   {context.DeadlineExceeded, gateway.ReasonTimeout},
		"frozen server":        {fmt.Errorf("%w: one", collect.ErrSilent), gateway.ReasonPathDown},
		"token not reviewed":   {&httpconnect.RefusedError{Code: 503, Status: "503 the token cannot be reviewed now"}, gateway.ReasonPathDown},
		"limit":                {&httpconnect.RefusedError{Code: 503, Status: "503 limit: 4096 connections"}, gateway.ReasonBusy},
		"server says timeout":  {&httpconnect.RefusedError{Code: 504, Status: "504 timeout: dial"}, gateway.ReasonTimeout},
		"this server is alien": {&httpconnect.RefusedError{Code: 401, Status: "401 token is not valid"}, gateway.ReasonPathDown},
	} {
		if got := gateway.ReasonOf(dialError(over, gateway.Destination{}, &v1alpha1.TunnelAgent{}, c.err)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
