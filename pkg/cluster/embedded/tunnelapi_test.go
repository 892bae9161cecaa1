// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// The tunnel's API server runs if the bundle has it: it asks the cluster's own Konnectivity server, which opens no port for
// that and connects to it without an agent.
func TestTunnelAPI(t *testing.T) {
	if _, ok := specs(t, testPlan(t, ""))[progTunnelAPI]; ok {
		t.Error("the API server runs by default")
	}
	p := testPlan(t, "tunnelAPI: {enabled: true, extraArgs: [{name: poll-interval, value: 2s}]}\nkonnectivity: {server: {extraArgs: [{name: local-destinations, value: '192.0.2.8:443'}]}}")
	p.state.Ports[portTunnelAPI] = 23000
	all := specs(t, p)
	spec := all[progTunnelAPI]
	if spec.Path != "/bin/fairlead-apiserver" || !slices.Contains(spec.NeedsFiles, p.Token(progTunnelAPI)) {
		t.Fatalf("%+v", spec)
	}
	for _, arg := range []string{
		"--bind-address=192.0.2.7", "--secure-port=23000", "--konnectivity-server=unix://" + p.StateSocket(), "--kubeconfig=" + p.Kubeconfig(progTunnelAPI),
		"--tls-cert-file=" + p.PKI("fairlead-apiserver.crt"), "--konnectivity-server-ca-file=" + p.PKI("ca.crt"), "--poll-interval=2s",
	} {
		if !slices.Contains(spec.Args, arg) {
			t.Errorf("%q lacks %s", spec.Args, arg)
		}
	}
	for _, arg := range []string{"--local-destinations=192.0.2.7:23000,192.0.2.8:443", "--state-port=0"} {
		if server := all[progTunnelServer].Args; !slices.Contains(server, arg) {
			t.Errorf("the Konnectivity server's %q lack %s", server, arg)
		}
	}
}

// The APIService names the Service, whose endpoint is the process; on a machine with loopback alone there is none, as
// kube-apiserver would not reach it.
func TestTunnelAPIObjects(t *testing.T) {
	p := testPlan(t, "tunnelAPI: {enabled: true}")
	p.Layout.Dir = t.TempDir()
	if err := os.MkdirAll(filepath.Dir(p.PKI("ca.crt")), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.PKI("ca.crt"), []byte("the CA"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.state.Ports[portTunnelAPI] = 23000
	list, err := p.tunnelAPIObjects()
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	slice, registered := list[1].(*discoveryv1.EndpointSlice), list[2].(*apiregistrationv1.APIService)
	if slice.Endpoints[0].Addresses[0] != "192.0.2.7" || *slice.Ports[0].Port != 23000 || slice.Labels[discoveryv1.LabelServiceName] != list[0].GetName() {
		t.Errorf("%+v", slice)
	}
	if registered.Spec.Service.Name != list[0].GetName() || string(registered.Spec.CABundle) != "the CA" {
		t.Errorf("%+v", registered.Spec)
	}
	p.state.HostIP = loopback
	if list, err = p.tunnelAPIObjects(); err != nil || len(list) != 0 {
		t.Errorf("without a network: %v, %v", list, err)
	}
}
