// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/v1beta1"
	"github.com/fairlead-dev/fairlead/pkg/bundle"
)

// HasBundle reports whether the cluster has a Bundle. The operator applies that one, and nothing else may.
func HasBundle(ctx context.Context, config *rest.Config) (bool, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return false, err
	}
	err = client.RESTClient().Get().AbsPath("/apis/"+v1beta1.GroupVersion.String(), "bundles", bundle.ObjectName).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
