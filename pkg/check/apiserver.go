// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
)

func apiServer(ctx context.Context, s *Scope) error {
	if err := Connect(ctx, s.Env); err != nil {
		return err
	}
	version, err := s.Client.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("get the version: %w", err)
	}
	s.Detail("version", "%s", version.GitVersion)
	if _, err := s.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return fmt.Errorf("/readyz: %w", err)
	}
	return nil
}
