// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// TestAPIService: the output ends with an APIService that strict decoding accepts, and wrong flags are refused with what
// to do. AGG-42: a Service without a namespace, or without a name, is one of these.
func TestAPIService(t *testing.T) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cmd := newAPIServiceCommand(streams)
	cmd.SetArgs([]string{"--group", "example.com", "--service", "apis/my-api"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(out.String(), "\n---\n")
	var api apiregistrationv1.APIService
	if err := yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &api); err != nil || api.Name != "v1.example.com" || len(api.Spec.CABundle) == 0 {
		t.Errorf("%v\n%s", err, documents[len(documents)-1])
	}
	for args, want := range map[string]string{
		"": "--group and --service are required", "--group a.b --service c": "--service are required", "--group a.b --service /c": `namespace ""`, "--group a.b --service c/": `service ""`,
		"--group apps --service a/b":         "must have a dot",
		"--group a.b --service a/b --port 0": "--port must not be 0", "--group a.b --service a/b --ca-cert x": "must be set together",
	} {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		cmd := newAPIServiceCommand(streams)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, got %v", args, want, err)
		}
	}
}
