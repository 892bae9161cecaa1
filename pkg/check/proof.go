package check

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// How a call proves that it went through the tunnel
//
// kube-apiserver counts every dial that it makes through its egress selector; konnectivity-server counts every dial that an agent completed.
// A call that opens a connection must raise both. Which calls do, in 1.36:
//
//   - exec, attach and port-forward are upgrades: UpgradeAwareHandler and SpdyRoundTripper dial for each one.
//   - Webhooks and the Service proxy keep connections alive per address; the check's own server closes each one after the answer, so each call dials.
//   - Logs and the node proxy share one keep-alive HTTP/2 transport per node address: a call within 90 s of the last one dials nothing. It is
//     the very transport whose dialer exec uses. If no dial was counted, the connection was reused, and the proof is that the server passed
//     on packets from the API server meanwhile.
//
// Failed dials must not rise. Other traffic of a busy cluster can raise any counter, so a failure that is not the call's own is measured again.
//
// Limit: with several API servers behind one address, the counters that we read must be those of the instance that made the call. A change
// of instance shows in process_start_time_seconds and is measured again; two instances that alternate in step can still make the check fail,
// and never make it pass wrongly. Point --context at one instance then.

// proofKind says what a call must show.
type proofKind int

const (
	// dials: the call opens a connection of its own.
	dials proofKind = iota
	// dialsOrReuses: the call may go over a connection that is already there.
	dialsOrReuses
)

// apiSample is what the API server counted.
type apiSample struct {
	instance        float64
	dials, failures float64
	configured      bool
}

// serverSample is what the konnectivity servers counted.
type serverSample struct {
	dials, packets float64
	hasPackets     bool
}

// sample is one reading of both sides. The server's may be read through the tunnel (the API server's pod proxy), which itself dials; so the API
// server is read next to the call on both sides, and once more after the server to see how many dials the reading made.
type sample struct {
	api, apiLate apiSample
	server       serverSample
}

// errMeasureAgain marks a verdict that other traffic may have caused.
var errMeasureAgain = errors.New("measure again")

// proofAttempts is how often a measurement that others disturbed is made.
const proofAttempts = 3

// prove makes the call and proves that it went through the tunnel.
func (s *Scope) prove(ctx context.Context, kind proofKind, call func(ctx context.Context) error) error {
	var err error
	for range proofAttempts {
		var how string
		how, err = s.proveOnce(ctx, kind, call)
		if err == nil {
			s.Detail("proof", "%s", how)
			return nil
		}
		if !errors.Is(err, errMeasureAgain) {
			return err
		}
		if serr := sleep(ctx, s.times.again); serr != nil {
			return err
		}
	}
	return err
}

func (s *Scope) proveOnce(ctx context.Context, kind proofKind, call func(ctx context.Context) error) (string, error) {
	before, err := s.sampleBefore(ctx)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	if err := bounded(ctx, s.times.clear, call); err != nil {
		return "", WithHint(fmt.Errorf("the call failed: %w", err), "%s", callHint(err))
	}
	s.Detail("latency", "%s", time.Since(begin).Round(time.Millisecond))
	after, err := s.sampleAfter(ctx)
	if err != nil {
		return "", err
	}
	return judge(kind, before, after)
}

func bounded(ctx context.Context, limit time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// judge compares two samples around a successful call and says how the call went through the tunnel.
func judge(kind proofKind, before, after sample) (string, error) {
	if before.api.instance != after.api.instance || after.api.instance != after.apiLate.instance {
		return "", fmt.Errorf("%w: the counters came from different API servers, or the API server restarted", errMeasureAgain)
	}
	if !after.api.configured {
		return "", WithHint(fmt.Errorf("the call worked, but not through the tunnel: the API server has no %s", metricDialStart),
			"kube-apiserver needs --egress-selector-config-file with a selection named cluster")
	}
	api := after.api.dials - before.api.dials
	reading := after.apiLate.dials - after.api.dials
	server := after.server.dials - before.server.dials - reading
	packets := after.server.packets - before.server.packets
	failures := after.api.failures - before.api.failures
	switch {
	case failures > 0:
		return "", fmt.Errorf("the call worked, but %g egress dials of the API server failed meanwhile (%w)", failures, errMeasureAgain)
	case api >= 1 && server >= 1:
		return fmt.Sprintf("API server dialled %g through the tunnel, server connected %g", api, server), nil
	case api >= 1:
		return "", WithHint(fmt.Errorf("the API server dialled %g through its egress selector, but the konnectivity servers whose metrics we read connected %g (%w)", api, server, errMeasureAgain),
			"are these the metrics of the server that this API server uses? --server-metrics-url names them")
	case kind == dialsOrReuses && after.api.dials > 0 && after.server.hasPackets && packets >= 1:
		return fmt.Sprintf("over a tunnel connection that was already open, server passed on %g packets", packets), nil
	}
	return "", WithHint(fmt.Errorf("the call worked, but not through the tunnel: the API server's egress dials went from %g to %g (%w)", before.api.dials, after.api.dials, errMeasureAgain),
		"does the egress selector file have a selection named cluster whose proxyProtocol is not Direct?")
}

func (s *Scope) sampleBefore(ctx context.Context) (out sample, err error) {
	if out.server, err = s.serverSample(ctx); err != nil {
		return out, err
	}
	out.api, err = s.apiSample(ctx)
	return out, err
}

func (s *Scope) sampleAfter(ctx context.Context) (out sample, err error) {
	if out.api, err = s.apiSample(ctx); err != nil {
		return out, err
	}
	if out.server, err = s.serverSample(ctx); err != nil {
		return out, err
	}
	out.apiLate, err = s.apiSample(ctx)
	return out, err
}

func (s *Scope) apiSample(ctx context.Context) (apiSample, error) {
	text, err := s.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return apiSample{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	parsed, err := parseMetrics(text)
	if err != nil {
		return apiSample{}, fmt.Errorf("API server: %w", err)
	}
	var out apiSample
	out.instance, _ = parsed.sum(metricProcessStart, nil)
	out.dials, out.configured = parsed.sum(metricDialStart, nil)
	out.failures, _ = parsed.sum(metricDialFailure, nil)
	return out, nil
}

func (s *Scope) serverSample(ctx context.Context) (serverSample, error) {
	const hint = "--server-metrics-url names the /metrics of konnectivity-server; without it, pods labelled k8s-app=konnectivity-server are asked on port 8134"
	if s.ServerMetrics == nil {
		return serverSample{}, WithHint(errors.New("nobody told how to read konnectivity-server's metrics, so tunnelling cannot be proved"), hint)
	}
	text, err := s.ServerMetrics(ctx)
	if err != nil {
		return serverSample{}, WithHint(fmt.Errorf("read konnectivity-server's metrics: %w", err), hint)
	}
	parsed, err := parseMetrics(text)
	if err != nil {
		return serverSample{}, fmt.Errorf("konnectivity-server: %w", err)
	}
	var out serverSample
	out.dials, _ = parsed.sum(metricServerDials, nil)
	out.packets, out.hasPackets = parsed.sum(metricServerPackets, map[string]string{"segment": "from_client", "packet_type": "DATA"})
	return out, nil
}
