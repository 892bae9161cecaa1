// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// randomText returns unguessable text; n is its number of random bytes.
func randomText(n int) string {
	buf := make([]byte, n)
	_, _ = rand.Read(buf) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(buf)
}

// ExecBytes is how much is sent and must come back: more than one frame of any of the layers between.
const ExecBytes = 64 << 10

// exec sends random text through a command that copies its input, and compares.
func (s *Scope) exec(ctx context.Context, pod *corev1.Pod) error {
	executor, err := s.executor(pod)
	if err != nil {
		return err
	}
	sent := randomText(ExecBytes / 4 * 3) // base64 makes four bytes of three
	var got, errOut bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(sent), Stdout: &got, Stderr: &errOut})
	if err != nil {
		return fmt.Errorf("%s: %w %s", strings.Join(s.Probe.ExecCommand, " "), err, strings.TrimSpace(errOut.String()))
	}
	if got.String() != sent {
		return fmt.Errorf("sent %d bytes to %q, but got %d different bytes, and %q on standard error", len(sent), strings.Join(s.Probe.ExecCommand, " "), got.Len(),
			strings.TrimSpace(errOut.String()))
	}
	return nil
}

// executor speaks WebSocket and falls back to SPDY, as kubectl does.
func (s *Scope) executor(pod *corev1.Pod) (remotecommand.Executor, error) {
	url := s.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: s.Probe.ExecCommand, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	spdy, err := remotecommand.NewSPDYExecutor(s.Config, "POST", url)
	if err != nil {
		return nil, err
	}
	ws, err := remotecommand.NewWebSocketExecutor(s.Config, "GET", url.String())
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(ws, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
