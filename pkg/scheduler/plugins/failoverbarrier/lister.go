// SPDX-License-Identifier: Apache-2.0

package failoverbarrier

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// lister lists the bound pods by UID, with namespace and name: one page at a time, each from the continue token of the
// page before. After an error it returns the token to continue with; "" starts from the beginning.
type lister interface {
	page(ctx context.Context, token string) (pods map[types.UID]string, next string, err error)
}

const (
	// boundPods selects what the scheduler counts: its informer leaves out pods that have ended.
	boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	// pageSize bounds the memory and the time that one answer takes.
	pageSize = 2000
)

// metadataLister asks for metadata only: names and UIDs are all that is compared.
type metadataLister struct{ client metadata.Interface }

func (l metadataLister) page(ctx context.Context, token string) (map[types.UID]string, string, error) {
	// No resource version: the answer is not older than the request.
	list, err := l.client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).
		List(ctx, metav1.ListOptions{FieldSelector: boundPods, Limit: pageSize, Continue: token})
	if err != nil {
		return nil, resume(token, err), err
	}
	bound := make(map[types.UID]string, len(list.Items))
	for i := range list.Items {
		bound[list.Items[i].UID] = list.Items[i].Namespace + "/" + list.Items[i].Name
	}
	return bound, list.Continue, nil
}

// resume returns the token to continue with after an error. The error for an expired token contains a new one, which
// lists the current pods from the same position on. Pods that were bound the whole time are in one part or the other.
func resume(token string, err error) string {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return token
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().ListMeta.Continue
	}
	return ""
}
