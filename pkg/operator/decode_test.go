// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
	operatorbundle "github.com/fairlead-dev/fairlead/pkg/bundle/operator"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
	"github.com/fairlead-dev/fairlead/pkg/install"
)

// TestUndecodable: an object that does not decode into its Go type gets a condition that names the
// field, whatever the schema let through when it was written, and the other objects of its kind
// are reconciled.
func TestUndecodable(t *testing.T) {
	testutil.Full(t, "objects that no client of the API server can create")
	daemontest.Beside(t)
	e := start(t)
	list, err := operatorbundle.Definitions(operatorbundle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var objects []component.Object
	for _, d := range list {
		for i := range d.Spec.Versions {
			v := &d.Spec.Versions[i]
			v.Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}
			v.Schema.OpenAPIV3Schema.XValidations, v.SelectableFields = nil, nil
		}
		objects = append(objects, d)
	}
	if _, err := install.Apply(t.Context(), e.cfg, objects, install.Options{Party: install.Operator}); err != nil {
		t.Fatal(err)
	}
	profiles, pools := e.kind("schedulerprofiles"), e.kind("tunnelpools").Namespace("kube-system")
	create := func(kind, name string, spec map[string]any) {
		t.Helper()
		in, namespace := e.bundles, ""
		switch kind {
		case "SchedulerProfile":
			in = profiles
		case "TunnelPool":
			in, namespace = pools, "kube-system"
		}
		if _, err := in.Create(t.Context(), object(kind, namespace, name, spec), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("Bundle", "default", map[string]any{"scheduler": map[string]any{"profiles": map[string]any{"schedulerName": "x"}}})
	create("SchedulerProfile", "bad", map[string]any{"schedulerName": int64(5), "strategy": "Standard"})
	create("SchedulerProfile", "good", map[string]any{"schedulerName": "good", "strategy": "Standard"})
	create("TunnelPool", "bad", map[string]any{"hostNetwork": int64(5)})
	create("TunnelPool", "good", map[string]any{})
	e.run()
	says := func(c metav1.Condition, part string) {
		t.Helper()
		if c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, part) {
			t.Errorf("condition %+v does not name %s", c, part)
		}
	}
	says(e.condition(e.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonInvalidBundle), "scheduler.profiles")
	e.patch(`{"spec": {"scheduler": {"profiles": null}}}`)
	e.reconciled(v1beta1.ReasonAsWanted)
	says(e.condition(profiles, "bad", v1beta1.ProfileAccepted, v1beta1.ReasonInvalid), "schedulerName")
	e.condition(profiles, "good", v1beta1.ProfileAccepted, v1beta1.ReasonAccepted)
	says(e.condition(pools, "bad", v1beta1.PoolAccepted, v1beta1.ReasonInvalid), "hostNetwork")
	e.condition(pools, "good", v1beta1.PoolAccepted, v1beta1.ReasonAccepted)
	// An object that changes while the operator watches.
	e.patch(`{"spec": {"scheduler": {"profiles": "none"}}}`)
	e.condition(e.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonInvalidBundle)
}

// TestMisspelledProfile: the schema keeps all fields of the profiles in a Bundle, also those that do not exist. The operator
// names them, as the commands do with a file, and applies nothing without them.
func TestMisspelledProfile(t *testing.T) {
	testutil.Full(t, "a variant of TestInstalled")
	daemontest.Beside(t)
	l := startProfiles(t, map[string]any{"scheduler": map[string]any{"profiles": []any{
		map[string]any{"schedulerName": "good"},
		map[string]any{"schedulerName": "bad", "pluginConfigs": []any{map[string]any{"name": "NodeResourcesFit"}}},
	}}})
	l.look()
	if c := l.condition(l.bundles, "default", v1beta1.BundleReconciled, v1beta1.ReasonInvalidBundle); !strings.Contains(c.Message, `spec.scheduler.profiles[1]: unknown field "pluginConfigs"`) {
		t.Errorf("the condition does not name the field: %s", c.Message)
	}
	l.patch(`{"spec": {"scheduler": {"profiles": [{"schedulerName": "good"}]}}}`)
	l.look()
	l.reconciled(v1beta1.ReasonAsWanted)
	l.has("good", true)
}
