// SPDX-License-Identifier: Apache-2.0

// Package webhook serves package conversion to the API server, as a conversion webhook for
// the CustomResourceDefinitions of group fairlead.dev.
//
// Start with [New], which makes the HTTP handler. The handler holds no state and uses no
// client, so any number of replicas may serve it, also before they lead. It refuses a
// request that is too large or that is one too many; it never refuses stored data.
package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/fairlead-dev/fairlead/pkg/apis/fairlead/conversion"
)

// Path at which the API server calls the handler.
const Path = conversion.WebhookPath

// Defaults of Options.
const (
	DefaultMaxBytes    = 64 << 20
	DefaultMaxInFlight = 64

	// headBytes is what is read of a request before it takes a place, and restTime is the time
	// for the rest.
	headBytes = 256 << 10
	restTime  = 5 * time.Second
	// bytesPerObject and bytesPerValue bound the objects and values of JSON in a request, as
	// parts of its largest size.
	bytesPerObject = 64
	bytesPerValue  = 8
)

// Options are the limits of a handler.
type Options struct {
	// MaxBytes limits a request's body. Default: DefaultMaxBytes, which is four lists of
	// 1,500 objects of 10 kB.
	MaxBytes int64
	// MaxInFlight limits concurrent requests. Default: DefaultMaxInFlight.
	MaxInFlight int
}

// Handler is the HTTP handler. It is also a prometheus.Collector of its metrics.
type Handler struct {
	maxBytes int64
	places   chan struct{}

	objects  *prometheus.CounterVec
	requests *prometheus.CounterVec
	seconds  prometheus.Histogram
}

// New makes a handler.
func New(o Options) *Handler {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxInFlight == 0 {
		o.MaxInFlight = DefaultMaxInFlight
	}
	return &Handler{
		maxBytes: o.MaxBytes, places: make(chan struct{}, o.MaxInFlight),
		objects: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_conversion_objects_total", Help: "Converted objects, by kind and apiVersion.",
		}, []string{"kind", "from", "to"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_conversion_requests_total", Help: "Conversion requests, by result.",
		}, []string{"result"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_conversion_request_duration_seconds", Help: "Duration of conversion requests.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
	}
}

// Describe implements prometheus.Collector.
func (h *Handler) Describe(c chan<- *prometheus.Desc) {
	h.objects.Describe(c)
	h.requests.Describe(c)
	h.seconds.Describe(c)
}

// Collect implements prometheus.Collector.
func (h *Handler) Collect(c chan<- prometheus.Metric) {
	h.objects.Collect(c)
	h.requests.Collect(c)
	h.seconds.Collect(c)
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		h.refuse(w, http.StatusMethodNotAllowed, "bad_request", "send a ConversionReview by POST")
		return
	}
	// A request takes a place when it has proved to be whole or large: one that is sent slowly
	// keeps no other waiting.
	limited := http.MaxBytesReader(w, r.Body, h.maxBytes)
	body, err := io.ReadAll(io.LimitReader(limited, headBytes))
	select {
	case h.places <- struct{}{}:
		defer func() { <-h.places }()
	default:
		h.refuse(w, http.StatusTooManyRequests, "too_many", fmt.Sprintf("more than %d conversions at once: try again", cap(h.places)))
		return
	}
	start := time.Now()
	defer func() { h.seconds.Observe(time.Since(start).Seconds()) }()
	if err == nil && len(body) == headBytes {
		_ = http.NewResponseController(w).SetReadDeadline(start.Add(restTime)) // a test's writer has none
		var rest []byte
		rest, err = io.ReadAll(limited)
		body = append(body, rest...)
	}
	review := &apiextensionsv1.ConversionReview{}
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		h.refuse(w, http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the request has more than %d bytes: list fewer objects at once (limit)", h.maxBytes))
		return
	}
	if err == nil && h.tooMany(body) {
		h.refuse(w, http.StatusRequestEntityTooLarge, "too_large", "the request has too many values for its size: list fewer objects at once (limit)")
		return
	}
	if err == nil {
		err = json.Unmarshal(body, review)
	}
	if err == nil && review.Request == nil {
		err = errors.New("request is missing")
	}
	if err != nil {
		h.refuse(w, http.StatusBadRequest, "bad_request", "no apiextensions.k8s.io/v1 ConversionReview: "+err.Error())
		return
	}
	review.Response = h.convert(review.Request)
	review.Request = nil
	h.requests.WithLabelValues(review.Response.Result.Status).Inc()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // the client has gone
}

// tooMany tells whether a request would take far more memory than its bytes: an object of JSON
// takes some 350 bytes however short it is. Real objects are some times below the limits.
func (h *Handler) tooMany(body []byte) bool {
	objects, values := int64(bytes.Count(body, []byte("{"))), int64(bytes.Count(body, []byte(","))+bytes.Count(body, []byte("[")))
	return objects > h.maxBytes/bytesPerObject || values > h.maxBytes/bytesPerValue
}

func (h *Handler) refuse(w http.ResponseWriter, code int, result, message string) {
	h.requests.WithLabelValues(result).Inc()
	http.Error(w, message, code)
}

// convert converts all objects or, if one of them is of no known kind or version, none.
func (h *Handler) convert(request *apiextensionsv1.ConversionRequest) *apiextensionsv1.ConversionResponse {
	response := &apiextensionsv1.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	converted := make([]runtime.RawExtension, 0, len(request.Objects))
	for i, object := range request.Objects {
		raw, err := h.convertOne(object.Raw, request.DesiredAPIVersion)
		if err != nil {
			response.Result = metav1.Status{Status: metav1.StatusFailure, Message: fmt.Sprintf("object %d: %v", i, err)}
			return response
		}
		converted = append(converted, runtime.RawExtension{Raw: raw})
	}
	response.ConvertedObjects = converted
	return response
}

func (h *Handler) convertOne(raw []byte, to string) ([]byte, error) {
	var object map[string]any
	if err := utiljson.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	kind, _ := object["kind"].(string)
	from, _ := object["apiVersion"].(string)
	if err := conversion.Convert(object, to); err != nil {
		return nil, err
	}
	h.objects.WithLabelValues(kind, from, to).Inc()
	return json.Marshal(object)
}
