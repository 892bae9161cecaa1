// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"context"
	"encoding/json"
	"fmt"

	tunnelv1alpha1 "github.com/fairlead-dev/fairlead/pkg/apis/tunnel/v1alpha1"
)

// TunnelAgents lists the agents that the tunnel's API shows. It asks once.
func (c *Cluster) TunnelAgents(ctx context.Context) ([]tunnelv1alpha1.TunnelAgent, error) {
	body, err := c.Client.CoreV1().RESTClient().Get().AbsPath(tunnelv1alpha1.Path, "tunnelagents").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var list tunnelv1alpha1.TunnelAgentList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read the list of agents: %w", err)
	}
	return list.Items, nil
}
