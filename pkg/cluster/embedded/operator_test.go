// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// The operator runs if that was asked for, with the rights that are rendered. The definitions name
// a Service that leads to the process, or no webhook where a Service could not lead to it.
func TestOperator(t *testing.T) {
	p := testPlan(t, "")
	if _, ok := specs(t, p)[progOperator]; ok {
		t.Error("the operator runs by default")
	}
	if list, err := p.operatorObjects(); err != nil || len(list) > 0 {
		t.Errorf("objects of an operator by default: %v, %v", list, err)
	}
	p.state.Operator = true
	p.state.Ports[portOperator], p.state.Ports[portOperatorHealth], p.state.Ports[portOperatorMetrics] = 23000, 23001, 23002
	check := func(webhook int, args ...string) {
		t.Helper()
		spec := specs(t, p)[progOperator]
		if spec.Path != "/bin/fairlead-operator" || !slices.Contains(spec.NeedsFiles, p.Token(progOperator)) {
			t.Fatalf("%+v", spec)
		}
		for _, arg := range append(args, "--kubeconfig="+p.Kubeconfig(progOperator), "--health-probe-bind-address=127.0.0.1:23001", "--metrics-bind-address=127.0.0.1:23002", "--namespace=fairlead-system") {
			if !slices.Contains(spec.Args, arg) {
				t.Errorf("%q lacks %s", spec.Args, arg)
			}
		}
		list, err := p.operatorObjects()
		if err != nil {
			t.Fatal(err)
		}
		calls, endpoints := 0, 0
		for _, o := range list {
			switch o := o.(type) {
			case *apiextensionsv1.CustomResourceDefinition:
				if o.Spec.Conversion != nil {
					calls++
				}
			case *corev1.Service:
				if len(o.Spec.Selector) > 0 || o.Spec.Ports[0].Port != 443 {
					t.Errorf("Service %+v", o.Spec)
				}
			case *discoveryv1.EndpointSlice:
				endpoints++
				if o.Endpoints[0].Addresses[0] != "192.0.2.7" || *o.Ports[0].Port != 23000 || o.Labels[discoveryv1.LabelServiceName] != "fairlead-operator" || o.Namespace != "fairlead-system" {
					t.Errorf("%+v", o)
				}
			default:
				if isWorkload(o) {
					t.Errorf("%s is a workload", o.GetName())
				}
			}
		}
		if calls != webhook || endpoints != min(webhook, 1) {
			t.Errorf("%d definitions have a webhook, want %d, with %d endpoints", calls, webhook, endpoints)
		}
	}
	check(2, "--webhook-bind-address=192.0.2.7:23000", "--webhook-service=fairlead-operator")
	p.state.HostIP = loopback
	check(0, "--webhook-bind-address=127.0.0.1:23000", "--webhook-url=https://127.0.0.1:23000/convert", "--webhook-names=127.0.0.1")
}
