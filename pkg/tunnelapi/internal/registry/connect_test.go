// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

type refusals []string

func (*refusals) Serve(*v1alpha1.TunnelAgent, *v1alpha1.TunnelAgentConnectOptions, rest.Responder) http.Handler {
	panic("not used")
}

func (r *refusals) Refused(_ context.Context, agent string, o *v1alpha1.TunnelAgentConnectOptions, _ error) {
	*r = append(*r, agent+" "+o.Host)
}

// TestUnknownAgentIsNoted: a request for an agent that does not exist reaches who logs and counts.
func TestUnknownAgentIsNoted(t *testing.T) {
	g, err := New(&fixed{}, time.Now(), 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got refusals
	g.Serve(&got)
	_, err = g.connect.Connect(t.Context(), "gone", &v1alpha1.TunnelAgentConnectOptions{Host: "web.default.svc", Port: 80}, nil)
	if !apierrors.IsNotFound(err) || len(got) != 1 || got[0] != "gone web.default.svc" {
		t.Errorf("%v, noted: %q", err, got)
	}
}
