// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/pkg/bundle"
	"github.com/fairlead-dev/fairlead/pkg/bundle/konnectivity"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
)

// TestPortFields: the field that the error about a taken port names is one of a bundle's file, and holds that port.
func TestPortFields(t *testing.T) {
	b := &v1alpha1.Bundle{}
	b.TunnelAPI.Enabled = ptr.To(true)
	b.Konnectivity.ProxyProtocol = v1alpha1.ProxyHTTPConnect
	b.Konnectivity.Transport.TCP = &v1alpha1.TCPTransport{URL: "https://127.0.0.1:8131"}
	b = b.Defaulted()
	data, err := bundle.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	ports := konnectivity.Server(b).Ports
	if len(ports) != 5 {
		t.Errorf("%d ports: %v", len(ports), ports)
	}
	for _, port := range ports {
		at := file["spec"]
		for _, name := range strings.Split(strings.ReplaceAll(portField(port.Name), "[0]", ".0"), ".") {
			switch v := at.(type) {
			case map[string]any:
				at = v[name]
			case []any:
				at = v[0]
			}
		}
		if !strings.HasSuffix(fmt.Sprint(at), fmt.Sprint(port.Number)) {
			t.Errorf("port %d: %s has %v", port.Number, portField(port.Name), at)
		}
	}
}
