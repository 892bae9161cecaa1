// SPDX-License-Identifier: Apache-2.0

package cmdutil

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/fairlead-dev/fairlead/pkg/internal/version"
	"github.com/fairlead-dev/fairlead/pkg/konnectivity/internal/trace"
)

// Tracing starts to export spans as the file says; without a file the tracer is nil. stop exports what is left.
func Tracing(logger klog.Logger, file, program string) (tracer *trace.Tracer, stop func(), err error) {
	if file == "" {
		return nil, func() {}, nil
	}
	cfg, err := trace.Load(file)
	if err != nil {
		return nil, nil, err
	}
	tracer = trace.New(cfg, program, version.Get().String(), logger)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); tracer.Run(ctx) }()
	logger.V(1).Info("Exporting spans", "endpoint", cfg.Endpoint)
	return tracer, func() { cancel(); <-done }, nil
}
