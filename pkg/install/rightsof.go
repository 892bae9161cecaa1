// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"

	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/pkg/bundle/component"
)

// MissingRights lists what this user may not do in the cluster behind cfg, and Apply of these objects needs. It changes nothing.
func MissingRights(ctx context.Context, cfg *rest.Config, objects []component.Object) ([]string, error) {
	manifests, err := sorted(objects)
	if err != nil {
		return nil, err
	}
	c, err := newClient(cfg, Command)
	if err != nil {
		return nil, err
	}
	missing, err := c.missing(ctx, c.party.bookkeeping(), "get", "create", "update")
	if err != nil {
		return nil, err
	}
	more, err := c.missingFor(ctx, manifests)
	return append(missing, more...), err
}
