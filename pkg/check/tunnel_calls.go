// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"strings"
)

// Each check of this file proves that one kind of call goes through the tunnel. See proof.go for what counts as proof.

func tunnelLogs(ctx context.Context, s *Scope) error {
	pod, err := s.probePod(ctx)
	if err != nil {
		return err
	}
	return s.prove(ctx, dialsOrReuses, func(ctx context.Context) error { return s.readLogs(ctx, pod) })
}

func tunnelExec(ctx context.Context, s *Scope) error {
	pod, err := s.probePod(ctx)
	if err != nil {
		return err
	}
	return s.prove(ctx, dials, func(ctx context.Context) error { return s.exec(ctx, pod) })
}

func tunnelPortForward(ctx context.Context, s *Scope) error {
	pod, err := s.probePod(ctx)
	if err != nil {
		return err
	}
	return s.prove(ctx, dials, func(ctx context.Context) error { return s.portForward(ctx, pod) })
}

func tunnelNodeProxy(ctx context.Context, s *Scope) error {
	node, err := s.readyNode(ctx)
	if err != nil {
		return err
	}
	s.Detail("node", "%s", node.Name)
	return s.prove(ctx, dialsOrReuses, func(ctx context.Context) error { return s.nodeHealthz(ctx, node.Name) })
}

func tunnelServiceProxy(ctx context.Context, s *Scope) error {
	h, err := s.startHook(ctx)
	if err != nil {
		return err
	}
	if err := s.standInPod(ctx, h); err != nil {
		return err
	}
	return s.prove(ctx, dials, func(ctx context.Context) error { return s.serviceProxyEcho(ctx, h) })
}

// tunnelWebhook measures only once the webhook answers: what the API server does while it learns of it is not the call's own.
func tunnelWebhook(ctx context.Context, s *Scope) error {
	h, err := s.startHook(ctx)
	if err != nil {
		return err
	}
	if err := s.registerHook(ctx, h); err != nil {
		return err
	}
	call := func(ctx context.Context) error { return s.callWebhook(ctx, h) }
	err = s.prove(ctx, dials, call)
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		return err
	}
	// The call used the agent of a node that did not know the Service yet.
	if werr := s.waitHookActive(ctx, h); werr != nil {
		return err
	}
	s.Detail("failed-before", "one call, while nodes learned of the Service: %v", err)
	return s.prove(ctx, dials, call)
}
