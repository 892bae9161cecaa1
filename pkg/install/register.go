// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"fmt"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// apiServiceKind is the kind that registers an extension API server. While one is registered whose server does not answer,
// kube-apiserver deletes no namespace. So it is created when the server is ready, and deleted before anything else.
const apiServiceKind = "APIService"

// awaitBackend waits until an APIService that does not exist yet has a ready server.
func (c *client) awaitBackend(ctx context.Context, ch change, reporter progress.Reporter) error {
	if ch.Kind != apiServiceKind || ch.live != nil && ch.action != Recreated {
		return nil
	}
	namespace, _, _ := unstructured.NestedString(ch.want.Object, "spec", "service", "namespace")
	name, _, _ := unstructured.NestedString(ch.want.Object, "spec", "service", "name")
	if name == "" { // kube-apiserver serves it
		return nil
	}
	reporter.Detail("waiting for a ready endpoint of Service %s/%s, to create %s", namespace, name, ch.Ref)
	for {
		ready, err := c.hasReadyEndpoint(ctx, namespace, name)
		switch {
		case ready:
			return nil
		case err != nil && ctx.Err() == nil && isAnswer(err):
			return fmt.Errorf("look for a ready endpoint of Service %s/%s: %w", namespace, name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("Service %s/%s has no ready endpoint (%w), and without one kube-apiserver would delete no namespace: see `kubectl -n %s describe pods`, and run this again",
				namespace, name, context.Cause(ctx), namespace)
		case <-time.After(pollInterval):
		}
	}
}

func (c *client) hasReadyEndpoint(ctx context.Context, namespace, service string) (bool, error) {
	list, err := c.kube.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return false, err
	}
	for i := range list.Items {
		for _, e := range list.Items[i].Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				return true, nil
			}
		}
	}
	return false, nil
}
