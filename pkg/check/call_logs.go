// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// readLogs asks for the pod's log once.
func (s *Scope) readLogs(ctx context.Context, pod *corev1.Pod) error {
	text, err := rawAnswer(ctx, s.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}))
	if err != nil {
		return err
	}
	if strings.TrimSpace(string(text)) == "" {
		return errors.New("the log is empty")
	}
	if want := s.Probe.LogWant; !strings.Contains(string(text), want) {
		return fmt.Errorf("the log does not contain %q: %.200q", want, text)
	}
	return nil
}
