// SPDX-License-Identifier: Apache-2.0

package connect

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/internal/logtest"
)

// TestLongNames: a host that no name can be is refused before any right is asked for, and neither host nor agent make log
// lines of any length.
func TestLongNames(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	const who = "long-winded" // connections of other tests may still end
	klog.SetLogger(logtest.New(func(_ int, line string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(line, who) {
			lines = append(lines, line)
		}
	}))
	t.Cleanup(klog.ClearLogger)
	w := newWorld(t, echo, nil) // no rights at all: with the right length, the answer is 403
	longest := strings.Repeat("x", 253)
	for host, want := range map[string]int32{
		longest: http.StatusForbidden, longest + ".": http.StatusForbidden,
		longest + "x": http.StatusBadRequest, strings.Repeat("y", 8000): http.StatusBadRequest,
	} {
		if _, s := w.dial(who, host, 80); s == nil || s.Code != want || len(s.Message) > 1000 {
			t.Errorf("a host of %d bytes: %+v, want %d", len(host), s, want)
		}
	}
	agent := strings.Repeat("z", 8000)
	ctx := request.WithUser(t.Context(), &user.DefaultInfo{Name: who})
	w.h.Refused(ctx, agent, &v1alpha1.TunnelAgentConnectOptions{Host: agent, Port: 80}, apierrors.NewNotFound(v1alpha1.Resource("tunnelagents"), agent))
	testutil.Eventually(t, patience, func() error { // a line may follow the answer
		mu.Lock()
		defer mu.Unlock()
		if len(lines) < 5 {
			return fmt.Errorf("%d of 5 lines", len(lines))
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 5 {
		t.Errorf("%d lines, want 5", len(lines))
	}
	for _, line := range lines {
		if len(line) > 4*512 {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
}
