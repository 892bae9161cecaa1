// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/agent"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/server"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/tunneltest"
)

// TestListMeanings: after a change, a list at exactly the version before has the state before, one that is not older than that
// and one of the latest state have a version at least as great, and further pages of a list are of its first page's version.
// It observes API-86 of docs/requirements.md.
func TestListMeanings(t *testing.T) {
	t.Parallel()
	rig := tunneltest.NewRig(t, server.Config{ServerID: "one"})
	join := func(id string) { rig.StartAgent(agent.Config{AgentID: id}, "") }
	join("a1")
	join("a2")
	client, err := dynamic.NewForConfig(start(t, "unix://"+showState(t, rig)))
	if err != nil {
		t.Fatal(err)
	}
	agents := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("tunnelagents"))
	list := func(o metav1.ListOptions) (*unstructured.UnstructuredList, []string) {
		t.Helper()
		l, err := agents.List(t.Context(), o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		var names []string
		for i := range l.Items {
			names = append(names, l.Items[i].GetName())
		}
		return l, names
	}
	until := func(want ...string) {
		t.Helper()
		tunneltest.Eventually(t, tunneltest.Patience, fmt.Sprint(want), func() bool {
			_, names := list(metav1.ListOptions{})
			return slices.Equal(names, want)
		})
	}
	until("a1", "a2")
	first, _ := list(metav1.ListOptions{Limit: 1})
	before := first.GetResourceVersion()
	join("a3")
	until("a1", "a2", "a3")

	both := []string{"a1", "a2"}
	if l, names := list(metav1.ListOptions{ResourceVersion: before, ResourceVersionMatch: metav1.ResourceVersionMatchExact}); l.GetResourceVersion() != before || !slices.Equal(names, both) {
		t.Errorf("exactly %s: version %s, %q", before, l.GetResourceVersion(), names)
	}
	if l, names := list(metav1.ListOptions{Limit: 1, Continue: first.GetContinue()}); l.GetResourceVersion() != before || !slices.Equal(names, both[1:]) {
		t.Errorf("the next page of %s: version %s, %q", before, l.GetResourceVersion(), names)
	}
	for name, o := range map[string]metav1.ListOptions{
		"latest":         {},
		"not older than": {ResourceVersion: before, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
		"any":            {ResourceVersion: "0", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
	} {
		l, names := list(o)
		if name == "latest" && !slices.Equal(names, []string{"a1", "a2", "a3"}) || number(t, l) < number(t, first) && name != "any" || len(names) < 2 {
			t.Errorf("%s: version %s after %s, %q", name, l.GetResourceVersion(), before, names)
		}
	}
}

func number(t *testing.T, l *unstructured.UnstructuredList) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(l.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
