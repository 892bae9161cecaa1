package failoverbarrier

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// lister says which pods are bound, by UID, with namespace and name.
type lister interface {
	list(ctx context.Context) (map[types.UID]string, error)
}

const (
	// boundPods selects what the scheduler counts: its informer leaves out pods that have ended.
	boundPods = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
	// page bounds the memory that one answer takes.
	page = 2000
)

// metadataLister asks for metadata only: names and UIDs are all that is compared.
type metadataLister struct{ client metadata.Interface }

func (l metadataLister) list(ctx context.Context) (map[types.UID]string, error) {
	pods := l.client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	bound := map[types.UID]string{}
	// No resource version: the answer is not older than the request.
	options := metav1.ListOptions{FieldSelector: boundPods, Limit: page}
	for {
		list, err := pods.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			bound[list.Items[i].UID] = list.Items[i].Namespace + "/" + list.Items[i].Name
		}
		if list.Continue == "" {
			return bound, nil
		}
		options.Continue = list.Continue
	}
}
