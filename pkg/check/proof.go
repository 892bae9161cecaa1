// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
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
//     on packets from the API server meanwhile: more of them than when the same is done without the call, because reading the server's
//     metrics may itself go through the tunnel.
//
// Other traffic of a busy cluster can raise any counter, so a failure that is not the call's own is measured again. Failed dials should not rise;
// when they do each time (one unavailable APIService is enough), and all else is as it should be, they are reported and do no harm.
//
// Limit: with several API servers behind one address, and unless Env.APIServerMetrics reads them all, the counters that we read must be those of
// the instance that made the call. A change of instance shows in process_start_time_seconds and is measured again; two instances that alternate in step can still make the check fail,
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

// connected is how many dials succeeded, or are under way. One that failed is not the call's, which worked, and no server connected it.
func (a apiSample) connected() float64 { return a.dials - a.failures }

// serverSample is what the konnectivity servers counted.
type serverSample struct {
	dials, packets float64
	hasPackets     bool
}

// sample is one reading of both sides. The server's may be read through the tunnel (the API server's pod proxy), which itself dials; so the API
// server is read next to the call on both sides, and unless Env.ServerMetricsAside, once more after the server to see how many dials the reading
// made.
type sample struct {
	api, apiLate apiSample
	server       serverSample
}

// errMeasureAgain marks a verdict that other traffic may have caused; see again.
var errMeasureAgain = errors.New("measure again")

// again returns an errMeasureAgain whose text is the message alone.
func again(format string, args ...any) error { return &againError{fmt.Errorf(format, args...)} }

type againError struct{ error }

func (e *againError) Is(target error) bool { return target == errMeasureAgain }

// proof says how a call went through the tunnel, and how many dials of others failed meanwhile.
type proof struct {
	how      string
	failures float64
}

// proofAttempts is how often a measurement that others disturbed is made.
const proofAttempts = 3

// prove makes the call and proves that it went through the tunnel.
func (s *Scope) prove(ctx context.Context, kind proofKind, call func(ctx context.Context) error) error {
	var good *proof
	var err error
	for range proofAttempts {
		var got proof
		got, err = s.proveOnce(ctx, kind, call)
		switch {
		case err == nil && got.failures == 0:
			s.Detail("proof", "%s", got.how)
			return nil
		case err == nil:
			good = &got
		case !errors.Is(err, errMeasureAgain):
			return err
		}
		if serr := sleep(ctx, s.times.again); serr != nil {
			break
		}
	}
	if good == nil {
		return err
	}
	s.Detail("proof", "%s", good.how)
	s.Detail("failed-dials", "%g other egress dials of the API server failed at the same time; check APIServices and webhooks for destinations that do not exist", good.failures)
	return nil
}

func (s *Scope) proveOnce(ctx context.Context, kind proofKind, call func(ctx context.Context) error) (proof, error) {
	before, err := s.sampleBefore(ctx)
	if err != nil {
		return proof{}, err
	}
	begin := time.Now()
	if err := bounded(ctx, s.times.clear, call); err != nil {
		return proof{}, WithHint(fmt.Errorf("the call failed: %w", err), "%s", callHint(err))
	}
	latency := time.Since(begin)
	s.Detail("latency", "%s", latency.Round(time.Millisecond))
	after, err := s.sampleAfter(ctx)
	if err != nil {
		return proof{}, err
	}
	idle := 0.0
	if kind == dialsOrReuses && after.api.connected() <= before.api.connected() {
		if idle, err = s.idlePackets(ctx, after.server, latency); err != nil {
			return proof{}, err
		}
	}
	return judge(kind, before, after, idle)
}

// idlePackets repeats what happens around a call, and takes as long, without the call, and returns how many packets the server passed on.
func (s *Scope) idlePackets(ctx context.Context, last serverSample, latency time.Duration) (float64, error) {
	if err := sleep(ctx, latency); err != nil {
		return 0, err
	}
	readings := 1 // and the one behind the server's, after the call
	if s.ServerMetricsAside {
		readings = 2
	}
	for range readings {
		if _, err := s.apiSample(ctx); err != nil {
			return 0, err
		}
	}
	now, err := s.serverSample(ctx)
	return max(0, now.packets-last.packets), err
}

func bounded(ctx context.Context, limit time.Duration, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// judge compares two samples around a successful call and says how the call went through the tunnel. idle is how many packets the server passes on
// in the same time without the call.
func judge(kind proofKind, before, after sample, idle float64) (proof, error) {
	if before.api.instance != after.api.instance || after.api.instance != after.apiLate.instance {
		return proof{}, again("the counters came from different API servers, or the API server restarted")
	}
	if !after.api.configured {
		return proof{}, WithHint(fmt.Errorf("the call worked, but not through the tunnel: the API server has no %s", metricDialStart),
			"kube-apiserver needs --egress-selector-config-file with a selection named cluster")
	}
	failures := after.api.failures - before.api.failures
	api := after.api.connected() - before.api.connected()
	// Less than nothing: a dial that began before it failed meanwhile.
	reading := max(0, after.apiLate.connected()-after.api.connected())
	server := max(0, after.server.dials-before.server.dials-reading)
	packets := after.server.packets - before.server.packets
	switch {
	case api >= 1 && server >= 1:
		return proof{fmt.Sprintf("API server dialed %s through the tunnel, server connected %s", countOf(api, "time"), countOf(server, "time")), failures}, nil
	case api >= 1:
		return proof{}, WithHint(again("the API server dialed %s through its egress selector, but the konnectivity servers whose metrics we read connected %s", countOf(api, "time"), countOf(server, "time")),
			"the metrics may be those of another server; set --server-metrics-url to the server that this API server uses")
	case kind == dialsOrReuses && after.api.dials > 0 && after.server.hasPackets && packets > idle:
		return proof{fmt.Sprintf("over a tunnel connection that was already open, server forwarded %s (%g without the call)", countOf(packets, "packet"), idle), failures}, nil
	case failures > 0:
		return proof{}, again("the call worked, but %g egress dials of the API server failed at the same time, and none succeeded", failures)
	}
	return proof{}, WithHint(again("the call worked, but not through the tunnel: the API server's egress dials went from %g to %g", before.api.dials, after.api.dials),
		"check that the egress selector file has a selection named cluster whose proxyProtocol is not Direct")
}

func countOf(n float64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%g %ss", n, what)
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
	if s.ServerMetricsAside {
		out.apiLate = out.api
		return out, nil
	}
	out.apiLate, err = s.apiSample(ctx)
	return out, err
}

func (s *Scope) apiSample(ctx context.Context) (apiSample, error) {
	parsed, err := s.apiFamilies(ctx)
	if err != nil {
		return apiSample{}, fmt.Errorf("read the API server's metrics: %w", err)
	}
	var out apiSample
	out.instance, _ = parsed.sum(metricProcessStart, nil)
	out.dials, out.configured = parsed.sum(metricDialStart, nil)
	out.failures, _ = parsed.sum(metricDialFailure, nil)
	return out, nil
}

// apiFamilies reads from the provider's API servers, or from the one that answers. That one is asked for protobuf, which it writes in half of
// the time that its text takes.
func (s *Scope) apiFamilies(ctx context.Context) (families, error) {
	if s.APIServerMetrics != nil {
		text, err := s.APIServerMetrics(ctx)
		if err != nil {
			return nil, err
		}
		return parseMetrics(text)
	}
	var contentType string
	data, err := s.Client.Discovery().RESTClient().Get().AbsPath("/metrics").
		SetHeader("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)), "text/plain;q=0.5").
		Do(ctx).ContentType(&contentType).Raw()
	if err != nil {
		return nil, err
	}
	if expfmt.ResponseFormat(http.Header{"Content-Type": {contentType}}).FormatType() == expfmt.TypeProtoDelim {
		return parseProtobuf(data)
	}
	return parseMetrics(data)
}

func (s *Scope) serverSample(ctx context.Context) (serverSample, error) {
	const hint = "set --server-metrics-url to the /metrics of konnectivity-server, or set the bundle of the server's Pods with -f"
	if s.ServerMetrics == nil {
		return serverSample{}, WithHint(errors.New("no konnectivity-server metrics endpoint is known, so tunnel use cannot be verified"), hint)
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
	out.packets, out.hasPackets = parsed.sum(metricServerPackets, map[string]string{"segment": "to_agent", "packet_type": "DATA"})
	return out, nil
}
