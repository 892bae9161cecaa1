// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/internal/testutil"
	"github.com/fairlead-dev/fairlead/pkg/bundle/tunnelapi"
	"github.com/fairlead-dev/fairlead/pkg/bundle/v1alpha1"
	"github.com/fairlead-dev/fairlead/pkg/daemon/daemontest"
)

// TestFlowSchemas: a real kube-apiserver puts requests for the tunnel's API into the level of the bundle, those of the
// API's server into that of the control plane's components, and no others into either.
func TestFlowSchemas(t *testing.T) {
	testutil.Full(t, "starts a second control plane")
	plane := daemontest.StartControlPlane(t)
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	b := &v1alpha1.Bundle{}
	b.TunnelAPI.Enabled = ptr.To(true)
	for _, o := range render(t, b).Objects {
		switch o.GetObjectKind().GroupVersionKind().Kind {
		case "FlowSchema", "PriorityLevelConfiguration":
			apply(t, dyn, o)
		}
	}
	schemas := plane.Client.FlowcontrolV1().FlowSchemas()
	const api = "/apis/tunnel.fairlead.dev/v1alpha1/"
	account := func(namespace string) rest.ImpersonationConfig {
		return rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":" + v1alpha1.TunnelAPIName,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}}
	}
	alice := rest.ImpersonationConfig{UserName: "alice", Groups: []string{"dev"}}
	anonymous := rest.ImpersonationConfig{UserName: "system:anonymous", Groups: []string{"system:unauthenticated"}}
	for _, c := range []struct {
		as         rest.ImpersonationConfig
		path, want string
	}{
		{alice, api + "tunnelagents", tunnelapi.ClientsName},
		{alice, api + "tunnelconnections/one-1", tunnelapi.ClientsName},
		{anonymous, api + "tunnelagents", tunnelapi.ClientsName},
		{alice, "/api/v1/nodes", "global-default"},
		{alice, "/apis/apps/v1/deployments", "global-default"},
		{account("kube-system"), "/apis/authorization.k8s.io/v1/subjectaccessreviews", v1alpha1.TunnelAPIName},
		{account("kube-system"), "/version", v1alpha1.TunnelAPIName},
		{account("other"), "/apis/authorization.k8s.io/v1/subjectaccessreviews", "service-accounts"},
	} {
		as := rest.CopyConfig(config)
		as.Impersonate = c.as
		client, err := rest.HTTPClientFor(as)
		if err != nil {
			t.Fatal(err)
		}
		daemontest.Eventually(t, time.Minute, func() error { // kube-apiserver takes a moment to see a schema
			schema, err := schemas.Get(t.Context(), c.want, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got, err := classified(client, as.Host+c.path)
			if err == nil && got != string(schema.UID) {
				err = fmt.Errorf("%s of %s: FlowSchema %q, want %s, which is %q", c.path, c.as.UserName, got, c.want, schema.UID)
			}
			return err
		})
	}
}

// classified is the UID of the FlowSchema that kube-apiserver has put a request into. Whether it is allowed, and
// finds anything, is judged later.
func classified(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID), nil
}
