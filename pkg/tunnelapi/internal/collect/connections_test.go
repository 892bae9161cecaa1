// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/state"
)

// carries is a server with connections to agents of these owners, in each of two pages.
type carries []string

func (carries) State(context.Context) (*state.State, error) { return nil, nil }

func (c carries) Connections(_ context.Context, after int64, _ int) (*state.Connections, error) {
	out := &state.Connections{ServerID: "one", More: after == 0}
	for i, owner := range c {
		out.Connections = append(out.Connections, state.Connection{Serial: after + int64(i) + 1, Owner: owner})
	}
	return out, nil
}

// TestLabelsAreShared: connections of one node have the same map of labels, also those of different pages, because a list
// may have very many of them.
func TestLabelsAreShared(t *testing.T) {
	owners := carries{"a", "", "not a label", "b"}
	c := New(Config{Timeout: time.Minute})
	got, err := c.connectionsOf(t.Context(), owners, func(*v1alpha1.TunnelConnection) bool { return true }, 100)
	if err != nil || len(got) != 2*len(owners) {
		t.Fatal(got, err)
	}
	for i, want := range []string{"map[tunnel.fairlead.dev/node:a]", "map[]", "map[]", "map[tunnel.fairlead.dev/node:b]"} {
		first, second := got[i].Labels, got[i+len(owners)].Labels
		if fmt.Sprint(first) != want || reflect.ValueOf(first).Pointer() != reflect.ValueOf(second).Pointer() {
			t.Errorf("owner %q has the labels %v and %v, want %v twice", owners[i], first, second, want)
		}
	}
}
