// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/pkg/controlplane/internal/kubelet"
)

const (
	pollEvery   = 250 * time.Millisecond
	pollTimeout = 5 * time.Second
	// settled is how long a restarted program must stay ready: a program that
	// crashes usually does so at once.
	settled = 2 * time.Second
	// logLines is the number of log lines to show of a program that does not
	// become ready.
	logLines = 8
)

// await polls ask until it has returned nil for the duration stable without a
// break, or until the timeout; then it returns the last error.
func (o Options) await(ctx context.Context, stable time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("not within %s", o.Timeout))
	defer cancel()
	var since time.Time
	for {
		err := ask(ctx)
		if err != nil {
			since = time.Time{}
			o.Progress.Detail("%v", err)
		} else if since.IsZero() {
			since = time.Now()
		}
		if err == nil && time.Since(since) >= stable {
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = errors.New("was ready for less than a moment")
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(o.poll):
		}
	}
}

// waitFor waits until the program runs with exactly its flags and its health
// check succeeds. Processes of another manifest do not count and must have
// exited: they may have the same flags, and answer the same health check.
func (n *node) waitFor(ctx context.Context, p *kubelet.Program, others []kubelet.Instance) error {
	if n.opts.waits != nil {
		return n.opts.waits(ctx, p)
	}
	return n.opts.await(ctx, n.opts.settle, func(ctx context.Context) error {
		if _, err := n.started(p, others); err != nil {
			return err
		}
		return n.healthy(ctx, p.Health)
	})
}

// waitGone waits until no process has those flags any more.
func (n *node) waitGone(ctx context.Context, p *kubelet.Program) error {
	if n.opts.waits != nil {
		return nil
	}
	return n.opts.await(ctx, 0, func(context.Context) error {
		if found := n.proc().Find(p, true); len(found) > 0 {
			return fmt.Errorf("%s still runs (process %d)", p.Name, found[0].PID)
		}
		return nil
	})
}

// started returns the instances of the program. It fails if there is none, or
// while one of the others still runs.
func (n *node) started(p *kubelet.Program, others []kubelet.Instance) ([]kubelet.Instance, error) {
	for _, i := range n.proc().Find(p, false) {
		if i.Among(others) {
			return nil, fmt.Errorf("the kubelet has not replaced %s yet (process %d)", p.Name, i.PID)
		}
	}
	found := n.proc().Find(p, true)
	if len(found) == 0 {
		return nil, fmt.Errorf("the kubelet has not started %s from its manifest yet", p.Name)
	}
	return found, nil
}

// checkVisible fails if a program works but its process is not visible from here:
// it would then be impossible to detect that the kubelet has restarted it.
func (n *node) checkVisible(p *kubelet.Program) error {
	if n.opts.waits != nil || len(n.proc().Find(p, false)) > 0 {
		return nil
	}
	return fmt.Errorf("%s works, but its process is not visible here, so a restart by the kubelet could not be detected: "+
		"run the command on the node itself, or in a Pod with hostPID: true", p.Name)
}

func (n *node) proc() kubelet.Procfs { return kubelet.Procfs(n.opts.proc) }

// healthy calls a health check. The client verifies kube-apiserver with the
// cluster's CA, and uses the administrator's identity if there is one.
func (n *node) healthy(ctx context.Context, url string) error {
	if n.opts.health != nil {
		return n.opts.health(url)
	}
	if url == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client, err := n.http(url)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

// notReady adds the container's last log lines to the error of a wait.
func (n *node) notReady(ctx context.Context, pod, container string, since time.Time, err error) error {
	text := fmt.Sprintf("%s did not get ready", pod)
	if reason := n.mirrorReason(context.WithoutCancel(ctx), pod); reason != "" {
		text += " (" + reason + ")"
	}
	lines := kubelet.LastLogLines(n.Host, n.namespaceOf(pod), pod, container, since, logLines)
	if len(lines) == 0 {
		return fmt.Errorf("%s: %w", text, err)
	}
	return fmt.Errorf("%s: %w\nlast lines of its log, %s:\n  %s", text, err, kubelet.PodLogs, strings.Join(lines, "\n  "))
}
