// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/pkg/bundle/pki"
	"github.com/fairlead-dev/fairlead/pkg/progress"
)

// apiServiceKind is the kind that registers an extension API server. While one is registered whose server does not answer,
// kube-apiserver deletes no namespace. So it is created when the server is ready, and deleted before anything else.
const apiServiceKind = "APIService"

// trustFirst lets kube-apiserver trust a new CA next to those that it trusts, in each APIService that exists, before anything
// else changes. A run that waits or ends at any later point leaves no server whose certificate kube-apiserver refuses.
func (c *client) trustFirst(ctx context.Context, changes []change, o Options) error {
	for i, ch := range changes {
		if ch.Kind != apiServiceKind || ch.action != Configured && ch.action != Adopted {
			continue
		}
		both := trustBoth(ch.want, ch.live)
		if both == nil {
			continue
		}
		o.Progress.Detail("letting kube-apiserver trust the CAs of %s before and after this run", ch.Ref)
		live, err := c.apply(ctx, both, o.Force, false)
		if err != nil {
			return fmt.Errorf("apply %s: %w", ch.Ref, err)
		}
		changes[i].live = live
	}
	return nil
}

// trustBoth returns a wanted APIService with the Service of the live one and the CAs of both; nil if the live one has them all.
func trustBoth(want, live *unstructured.Unstructured) *unstructured.Unstructured {
	trust, before := caBundleOf(want), caBundleOf(live)
	added, err := pki.ParseCerts(trust)
	if err != nil || len(before) == 0 { // nothing to trust, or no CA of its own so far
		return nil
	}
	known, _ := pki.ParseCerts(before)
	missing := len(added)
	for _, k := range known {
		if slices.ContainsFunc(added, k.Equal) {
			missing--
		} else {
			trust = append(trust, pki.EncodeCert(k)...)
		}
	}
	service, found, _ := unstructured.NestedMap(live.Object, "spec", "service")
	if missing == 0 || !found {
		return nil
	}
	out := want.DeepCopy()
	if unstructured.SetNestedMap(out.Object, service, "spec", "service") != nil ||
		unstructured.SetNestedField(out.Object, base64.StdEncoding.EncodeToString(trust), "spec", "caBundle") != nil {
		return nil
	}
	return out
}

// caBundleOf returns the CAs of an APIService, which end with a newline; nil if it has none.
func caBundleOf(u *unstructured.Unstructured) []byte {
	text, _, _ := unstructured.NestedString(u.Object, "spec", "caBundle")
	data, err := base64.StdEncoding.DecodeString(text)
	if data = bytes.TrimSpace(data); err != nil || len(data) == 0 {
		return nil
	}
	return append(data, '\n')
}

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
		case <-time.After(c.timing.poll):
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
