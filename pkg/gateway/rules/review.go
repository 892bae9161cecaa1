// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/fairlead-dev/fairlead/pkg/gateway"
)

const (
	allowedFor  = 30 * time.Second
	deniedFor   = 5 * time.Second
	reviewCache = 4096
)

// Review asks the API server with a SubjectAccessReview whether the client may create
// services/proxy, pods/portforward or nodes/proxy of the destination.
type Review struct {
	client authorizationclient.SubjectAccessReviewInterface
	cache  *cache.LRUExpireCache
}

// NewReview returns a Review that keeps answers for some seconds.
func NewReview(client authorizationclient.SubjectAccessReviewInterface) *Review {
	return &Review{client: client, cache: cache.NewLRUExpireCache(reviewCache)}
}

var subresources = map[gateway.Kind][2]string{
	gateway.KindService: {"services", "proxy"},
	gateway.KindPod:     {"pods", "portforward"},
	gateway.KindNode:    {"nodes", "proxy"},
}

func (r *Review) check(ctx context.Context, client user.Info, d gateway.Destination) error {
	resource, ok := subresources[d.Kind]
	if !ok {
		return denied(d, "", "%s is no kind that the API server can authorize", d.Kind)
	}
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: client.GetName(), Groups: client.GetGroups(), UID: client.GetUID(), Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "create", Version: "v1", Resource: resource[0], Subresource: resource[1], Namespace: d.Namespace, Name: d.Name,
		},
	}
	for key, values := range client.GetExtra() {
		spec.Extra[key] = values
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("encode the SubjectAccessReview: %w", err)
	}
	status, ok := r.cache.Get(string(key))
	if !ok {
		answer, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return gateway.Errorf(gateway.ReasonPathDown, "check the connection to the API server and the right to create subjectaccessreviews",
				"SubjectAccessReview: %w", err)
		}
		ttl := deniedFor
		if answer.Status.Allowed {
			ttl = allowedFor
		}
		status = answer.Status
		r.cache.Add(string(key), status, ttl)
	}
	if s := status.(authorizationv1.SubjectAccessReviewStatus); !s.Allowed || s.Denied {
		return denied(d, fmt.Sprintf("grant the verb create on %s/%s", resource[0], resource[1]),
			"the API server does not let %q create %s/%s of %s", client.GetName(), resource[0], resource[1], objectName(d))
	}
	return nil
}
