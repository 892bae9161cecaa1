// SPDX-License-Identifier: Apache-2.0

package tunnelapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/settings"
	"github.com/fairlead-dev/fairlead/pkg/tunnelapi/app"
)

// connects reports whether the program and the servers of a bundle open connections.
func connects(t *testing.T, config string) (program, servers bool) {
	t.Helper()
	b := load(t, config)
	for _, f := range tunnelapi.Flags(b) {
		program = program || f == component.PlainFlag("connect", "true")
	}
	for _, e := range konnectivity.Server(b).Env {
		servers = servers || e.Name == settings.StateConnect && e.Value == "true"
	}
	return program, servers
}

// TestConnectIsOff: without the field, neither program opens connections, and there are no objects for it. With the field,
// both do; with the field alone, there is no API server, and the servers open none either.
func TestConnectIsOff(t *testing.T) {
	for config, want := range map[string]bool{"tunnelAPI: {enabled: true}": false, "tunnelAPI: {connect: true}": false, "tunnelAPI: {enabled: true, connect: true}": true} {
		program, servers := connects(t, config)
		roles := 0
		for _, o := range objects(t, config) {
			if r, ok := o.(*rbacv1.ClusterRole); ok && r.Name != tunnelapi.ViewerRole {
				roles++
			}
		}
		if got := []bool{program, servers, roles > 0}; slices.Contains(got, !want) {
			t.Errorf("%q: program, servers, roles: %v, want %v", config, got, want)
		}
	}
}

// TestConnectRights: the server may read what names and addresses belong to and nothing else, the role for users gives no
// destination, the role for destinations nothing else, and no role is part of another one.
func TestConnectRights(t *testing.T) {
	verbs := map[string][]string{}
	for _, o := range objects(t, "tunnelAPI: {enabled: true, connect: true}") {
		r, ok := o.(*rbacv1.ClusterRole)
		if !ok || r.Name == tunnelapi.ViewerRole {
			continue
		}
		for label := range r.Labels {
			if label != "app.kubernetes.io/name" {
				t.Errorf("%s has the label %s", r.Name, label)
			}
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				key := r.Name + " " + rule.APIGroups[0] + " " + resource
				verbs[key] = append(verbs[key], rule.Verbs...)
			}
		}
	}
	want := map[string][]string{
		"fairlead-apiserver-resolver  services":                                  {"get", "list"},
		"fairlead-apiserver-resolver  pods":                                      {"list"},
		"fairlead-apiserver-resolver  nodes":                                     {"list"},
		"fairlead-apiserver-resolver discovery.k8s.io endpointslices":            {"list"},
		"fairlead-tunnel-connect tunnel.fairlead.dev tunnelagents":               {"get", "list"},
		"fairlead-tunnel-connect tunnel.fairlead.dev tunnelagents/portforward":   {"get", "create"},
		"fairlead-tunnel-destinations tunnel.fairlead.dev destinations/services": {"connect"},
		"fairlead-tunnel-destinations tunnel.fairlead.dev destinations/pods":     {"connect"},
	}
	for key, v := range want {
		if !slices.Equal(verbs[key], v) {
			t.Errorf("%s: %q, want %q", key, verbs[key], v)
		}
	}
	if len(verbs) != len(want) {
		t.Errorf("rules: %v", verbs)
	}
}

// TestConnectKeepsNoPlaces: connections get no place of a priority level, also none of "exempt", whose places kube-apiserver
// takes from the other levels. It gives none to requests that it knows to take long, by the name of the subresource.
func TestConnectKeepsNoPlaces(t *testing.T) {
	for _, o := range objects(t, "tunnelAPI: {enabled: true, connect: true}") {
		if f, ok := o.(*flowcontrolv1.FlowSchema); ok && f.Spec.PriorityLevelConfiguration.Name == "exempt" {
			t.Errorf("%s is exempt", f.Name)
		}
	}
	// As kube-apiserver's own configuration has them: buildGenericConfig in k8s.io/kubernetes/pkg/controlplane/apiserver.
	long := genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward"))
	path := "/apis/" + tunnelv1alpha1.SchemeGroupVersion.String() + "/tunnelagents/a1/" + tunnelv1alpha1.SubresourceConnect
	req := httptest.NewRequest(http.MethodGet, path+"?host=web.default.svc&port=80", nil)
	info, err := (&request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}).NewRequestInfo(req)
	if err != nil || !long(req, info) {
		t.Errorf("%+v is a short request: %v", info, err)
	}
}

// TestConnectFlagIsAccepted: the program accepts what the Deployment passes.
func TestConnectFlagIsAccepted(t *testing.T) {
	list := objects(t, "tunnelAPI: {enabled: true, connect: true}")
	args := list[len(list)-1].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Args
	cmd := app.NewCommand()
	if err := cmd.ParseFlags(args); err != nil || cmd.Flag("connect").Value.String() != "true" {
		t.Errorf("%q: %v", args, err)
	}
}
